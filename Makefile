# Every target is a script of a few lines in ci/, or one go command.

.DEFAULT_GOAL := help
.PHONY: build manuals runtime newest test test-all test-short held e2e bench fuzz soak lint demo clean help

build: ## build bin/tapgw, bin/tapctl and bin/lsclient
	CGO_ENABLED=0 go build -trimpath -tags urfave_cli_no_docs -o bin/ ./cmd/...

manuals: ## write man pages and shell completions into share/
	@bash ci/manuals.sh

runtime: ## fetch the pinned Copilot runtime and the tests' npm packages into .runtime/ (600 MB)
	@bash ci/runtime.sh

test: ## install what the tests need, then run the tests: minutes
	@bash ci/setup.sh
	@bash ci/runtime.sh
	@bash ci/check.sh
	@bash ci/test.sh

test-all: ## besides: every test with the race detector, storms, other agents, fuzz targets: half an hour
	@bash ci/test-all.sh

test-short: ## the tests that need neither npm nor a minute
	go test -short -shuffle=on ./...

held: runtime ## the tests beside strangers who hold the gateway's default port, in turn
	@bash ci/held.sh

e2e: runtime ## real runtime, real binaries, the documents' examples
	go test -count=1 -timeout 10m -tags "$$(cat ci/tags)" ./internal/copilot/... ./internal/langserver/... ./cmd/lsclient ./test/...

newest: ## the tests of Copilot sessions and lsclient on the newest CLI and language server
	@bash ci/newest.sh

bench: build runtime ## measure against a relay without logic, raw clients and ripgrep (ONLY=^Call: one): ratios
	@bash ci/bench.sh '$(ONLY)'

fuzz: ## fuzz every target for 30 s (FUZZTIME=2m for longer)
	@bash ci/fuzz.sh

soak: ## a million calls in a storm, thousands of lost connections, then fuzz every target for 30 s
	go test -race -p 1 -count=1 -timeout 60m -tags soak -run '^TestSoak' ./internal/gateway ./test/...
	go test -count=1 -timeout 30m -tags soak -run '^TestSoakCalls$$' ./internal/gateway
	@FUZZTIME=30s bash ci/fuzz.sh

lint: ## formatting, vet and golangci-lint (built from source once: minutes)
	@bash ci/check.sh
	@bash ci/lint.sh

demo: build ## the main job, on a real Copilot session where npm can fetch the runtime
	@bash ci/runtime.sh demo || echo "no Copilot runtime: the demo uses a local session" >&2
	@bin/tapgw demo

clean: ## remove what the other targets made
	rm -rf bin dist share .runtime

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | expand -t 14
