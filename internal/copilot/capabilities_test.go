package copilot

// capabilities has the tests that show the capability of a row: on the real runtime, unless it
// concerns only the config or the API. Section 1 is the table in docs/copilot.md of what a
// repository brings, the others are those of README.md.
var capabilities = map[string]map[string]string{
	"1": {
		"hooks":                                     "TestRepositoryStartsNothing TestCopilotHooksAreTrusted",
		"hooks for Claude Code":                     "TestRepositoryStartsNothing",
		"`disableAllHooks`":                         "TestRepositoryTurnsNoGateOff",
		"language servers, the tool `lsp`":          "TestLanguageServersOfATrustedProject",
		"your own language servers":                 "TestLanguageServersOfATrustedProject",
		"MCP servers":                               "TestRepositoryStartsNothing",
		"custom agents, which may name MCP servers": "TestRepositoryStartsNothing",
		"skills, commands":                          "TestRepositoryStartsNothing",
		"plugins and marketplaces":                  "TestRepositoryStartsNothing",
		"extensions, prompts, workflows":            "TestRepositoryStartsNothing",
		"other keys of settings":                    "TestRepositoryStartsNothing",
		"instructions":                              "TestInstructionsLeadNowhere",
		"git's configuration":                       "TestRepositoryStartsNothing",
		"`.env`, `.envrc`":                          "TestRepositoryStartsNothing",
		"`.github/allowed_models.txt`, pull request templates": "TestRepositoryStartsNothing",
	},
	"2": {
		"`start`":     "TestProbe TestRuntimeThatDoesNotStart",
		"`stop`":      "TestShutdown",
		"`forceStop`": "TestCloseOfAHungRuntime",
		"`createSession`": "TestStartWithAProfile TestProfileOfARequest " +
			"TestProfileTakesEveryKey",
		"`resumeSession`":                "TestResume TestResumeAfterTheGatewayWasKilled",
		"`getState`":                     "TestRuntimeKilledInMidTurn TestRuntimeGivenUp",
		"`ping`":                         "TestRuntimeHangs",
		"`getStatus`":                    "TestProbe",
		"`getAuthStatus`":                "TestProbe TestNotSignedIn",
		"`listModels`":                   "TestGitHubModels TestModelsOfAnEndpoint",
		"`getLastSessionId`":             "TestPersistedFilters",
		"`deleteSession`":                "TestDelete TestPersistedSessions",
		"`listSessions` with its filter": "TestPersistedFilters TestPersistedSessions",
		"`getSessionMetadata`":           "TestPersisted",
		"`on`, one type or all: created, deleted, updated": "TestEventsStates",
	},
	"3": {
		"`workspacePath`":            "TestTimelineLines",
		"`capabilities`, `ui`":       "TestAnswersOfInputsAndForms TestForm",
		"`send`":                     "TestTurnsOfOneSession",
		"`sendAndWait`":              "TestTurnStorm TestNoCrosstalk",
		"`on`, one type or all":      "TestRawEventsAreKeptWithoutSecrets TestSessionEventsOrder",
		"`getMessages`":              "TestResume TestAPIRuntimeEvents",
		"`disconnect`, `destroy`":    "TestResume TestShutdown",
		"`abort`":                    "TestInterruptCancelsCalls TestTurnTime TestModelFaults",
		"`setModel`":                 "TestSetModel TestGitHubModelIsChecked",
		"`log`, its levels":          "TestLogLines",
		"`prompt`":                   "TestToolRoundTrip",
		"`attachments`":              "TestAttachments TestAttachmentsAndHeaders TestUploads",
		"`mode`: enqueue, immediate": "TestImmediate TestTurnsOfOneSession TestSteer",
		"`requestHeaders`":           "TestAttachments TestAttachmentsAndHeaders",
	},
	"4": {
		"4.1 streaming deltas and the assistant's turn": "" +
			"TestProfileStreaming TestReasoning TestTimelineLines",
		"4.1 `assistant.usage`":             "TestUsageIsCountedByPrompt",
		"4.1 tool execution":                "TestToolRoundTrip TestTimelineLines",
		"4.1 permissions, questions, forms": "TestPermissionAsked TestAskUser TestForm",
		"4.1 commands and capabilities":     "TestEventsAreDocumented TestCommands",
		"4.1 lifecycle, errors, compaction": "" +
			"TestCompactionIsTold TestFailedCallsAreTold TestModelError",
		"4.2 all members of the union":     "TestEventsAreDocumented",
		"types that the SDK does not know": "TestRawEventsAreKeptWithoutSecrets",
	},
	"5": {
		"name, description, parameters": "" +
			"TestToolRoundTrip TestToolsChangeInMidTurn TestToolsComeBackBetweenTurns " +
			"TestEveryFormOfSchemaReachesTheModel",
		"handler, with arguments and invocation":       "TestToolRoundTrip TestInterruptCancelsCalls",
		"`overridesBuiltInTool`; the clash without it": "TestBuiltinClash",
		"`skipPermission`":                             "TestCustomToolsDenied TestPermissionsByKind",
		"`traceparent` of an invocation":               "TestTraceFromPushToProvider",
		"many tools": "TestToolsAreSearched TestSearchFollowsTheThreshold " +
			"TestSearchedToolsArePermittedByName",
		"results: a string, JSON, an object with binary, several parts with several images": "" +
			"TestToolResult TestToolResultOfFile TestImage TestPartsResult TestImagesOfParts",
		"result types success, failure, rejected, denied, timeout": "" +
			"TestToolResultOfFailure TestResults",
		"large results":                     "TestProfileLargeOutput TestLargeResult",
		"`availableTools`, `excludedTools`": "TestProfileTools",
		"MCP servers":                       "TestProfileMCP",
	},
	"6": {
		"a handler is required": "TestPermissionsByKind TestUnanswered",
		"kinds shell, write, read, mcp, url, custom-tool, memory, hook": "" +
			"TestPermissionsByKind TestPermissionsAskedByKind",
		"fields of `shell`: command, paths, URLs": "TestCommandVerdict TestAllows FuzzAllows",
		"fields of `write` and `read`: file": "" +
			"TestPathVerdict TestPermissionsOfReads TestPatchIsJudgedByAllPaths " +
			"TestEditsTellNothing TestSearchFindsNothingDenied",
		"fields of `url`": "TestURLVerdict",
		"extension kinds": "TestPermissionsByKind",
		"results approved, for the session, denied with feedback": "" +
			"TestPermissionAsked TestAnswers",
		"denied for want of a person": "TestUnanswered TestNobodyAnswers TestNobodyToAsk",
		"timeout, not documented":     "TestUnanswered",
	},
	"7": {
		"`onUserInputRequest`, which enables `ask_user`": "" +
			"TestAskUser TestAnswers TestRuntimeKilledWhileAsked",
		"`question`, `choices`, `allowFreeform`":     "TestAskUser TestAnswersOfInputsAndForms",
		"`answer`, `wasFreeform`":                    "TestAskUser",
		"`requestId` and `toolCallId` of the events": "TestQuestionAnsweredOnce",
		"timeout, not documented":                    "TestUnanswered",
		"elicitation: forms with a schema":           "TestForm TestAnswersOfInputsAndForms",
	},
	"8": {
		"`enabled`":                                    "TestProfileInfinite",
		"`backgroundCompactionThreshold`":              "TestProfileInfinite TestInfiniteSessionFaults",
		"`bufferExhaustionThreshold`":                  "TestProfileOnTheWire TestInfiniteSessionFaults",
		"on by default, kept in a workspace directory": "TestResume",
		"`checkpoints/`, `plan.md`, `files/`":          "TestTimelineLines",
		"compaction: start and complete":               "TestCompactionIsTold",
	},
	"9": {
		"low, medium, high, xhigh, and max":                     "TestProfileEffort TestProfileFaults",
		"only for models that know it":                          "TestGitHubModelIsChecked",
		"`supportedReasoningEfforts`, `defaultReasoningEffort`": "TestGitHubModels",
		"changed in a session that runs":                        "TestSetModel",
		"`reasoningEffort` of start and resume":                 "TestResume TestSetModel",
		"`reasoningTokens` of usage":                            "TestUsageIsCountedByPrompt",
		"summaries of reasoning":                                "TestProfileOnTheWire",
	},
	"10": {
		"`otlpEndpoint` and the rest of `TelemetryConfig`": "" +
			"TestTraceFromPushToProvider TestFromEnv",
		"`captureContent`": "TestTraceContent",
		"`TraceContextProvider`, before create, resume and send": "TestTraceFromPushToProvider",
		"`traceparent` of a tool invocation":                     "TestTraceFromPushToProvider",
		"nothing where nobody asks":                              "TestNobodyWantsTraces",
	},
	"11": {
		"the signed-in user":                  "TestNotSignedIn TestProbe",
		"`gitHubToken` of the client":         "TestGitHubTokens TestGitHubTokenIsMissing",
		"`useLoggedInUser`, off with a token": "TestGitHubTokens",
		"GitHub host":                         "TestGitHubHost",
		"`copilotHome`":                       "TestProfileOnTheWire TestEnviron",
		"`getAuthStatus`":                     "TestProbe",
		"`gitHubToken` of a session":          "TestGitHubTokens TestStartWithAProfile",
		"`provider` kind openai, wires completions and responses": "TestEndpoints",
		"kind azure, `azure.apiVersion`":                          "TestAzureEndpoints",
		"kind anthropic":                                          "TestAnthropicEndpoints",
		"`apiKey`, `bearerToken`":                                 "TestEndpoints TestEndpointFaults",
		"`headers`":                                               "TestEndpoints",
		"`modelId`, `wireModel`":                                  "TestEndpoints",
		"`maxInputTokens`, `maxOutputTokens`":                     "TestProfileInfinite TestProfileOnTheWire",
		"`model` is required with a provider":                     "TestBadRequests",
		"combinations that are not legal": "" +
			"TestProfileFaults TestEndpointFaults TestProjectSetsNoEndpoint",
	},
	"12": {
		"`copilotHome`, default `~/.copilot`": "TestEnsure TestResume",
		"`session-state/ID` with its files":   "TestResume",
		"the config directory of a session":   "TestProfileOnTheWire",
		"several clients on one home":         "TestSessionInUse TestEnsure",
	},
	"13": {
		"`resumeSession` keeps the history":           "TestResume TestResumeAfterTheGatewayWasKilled",
		"`disconnect` and `stop` keep it on disk":     "TestResume TestResumeAfterTheGatewayWasKilled",
		"`deleteSession`":                             "TestDelete",
		"`getMessages`":                               "TestResume",
		"`listSessions`: id, times, summary, context": "TestPersistedFilters TestPersisted",
		"`getSessionMetadata`, `getLastSessionId`":    "TestPersistedFilters",
		"`disableResume`":                             "TestToolsWithoutToolsSet",
		"`continuePendingWork`: true":                 "TestResumeWithAToolCallPending",
		"`continuePendingWork`: false":                "TestResumeWithoutThePendingCall",
		"`sessionWasActive`, hot or cold":             "TestPersistedSessions TestRuntimeKilledInMidTurn",
	},
}
