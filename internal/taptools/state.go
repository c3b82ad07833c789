package taptools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/visible"
	"tapgw/providers"
)

// modeTimeout is how long the call waits for the person's answer.
const modeTimeout = 10 * time.Minute

// gateSlack is how much longer a call that asks a person may take.
const gateSlack = 30 * time.Second

func (t *toolset) addState() {
	addTool(t, "tap_get_session_state", "Show the state of this session: its mode and model, how "+
		"hard the model reasons, how many tokens of its context are used, how many of its "+
		"sources run (tasks) or "+
		"will run (schedules), and how many questions wait for the person.", t.state, isReadOnly)
	addTool(t, "tap_set_session_mode", "Ask the person to change the mode of this session. The "+
		"person decides; without an answer the mode stays.", t.setMode,
		func(p *providers.Tool) { p.Timeout = modeTimeout + 10*time.Second })
}

func (t *toolset) state(ctx context.Context, _ struct{}) (string, error) {
	v := t.Session.View()
	pending := 0
	for _, q := range t.Questions() {
		if q.Session == v.ID && q.Kind == adminapi.QuestionPermission {
			pending++
		}
	}
	fields := []string{"sessionId=" + v.ID}
	switch mode, err := t.Session.Mode(ctx); {
	case err == nil:
		fields = append(fields, "mode="+oneWord(mode))
	case !errors.Is(err, gateway.ErrNoModes):
		return "", err
	}
	if v.Model != "" {
		fields = append(fields, "model="+oneWord(v.Model))
	}
	window := "unknown"
	if u := t.Session.Usage(); u.ContextLimit > 0 {
		window = fmt.Sprintf("%d/%d", u.ContextTokens, u.ContextLimit)
	}
	fields = append(fields, "reasoning="+oneWord(cmp.Or(t.Session.Effort(), "unknown")),
		"context="+window)
	tasks, schedules := t.countEmitters()
	fields = append(fields,
		fmt.Sprintf("providers=%d tools=%d tasks=%d schedules=%d pendingPermissions=%d "+
			"openCanvases=0 elicitation=available canvases=none", v.Providers, v.Tools, tasks,
			schedules, pending))
	return strings.Join(fields, " "), nil
}

// countEmitters returns how many sources of the session run now, and how many will run again.
func (t *toolset) countEmitters() (running, waiting int) {
	if t.Emitters == nil {
		return 0, 0
	}
	for _, s := range t.Emitters.Sources() {
		switch {
		case s.State == adminapi.SourceRunning:
			running++
		case !s.NextRunAt.IsZero():
			waiting++
		}
	}
	return running, waiting
}

type modeArgs struct {
	Mode    string `json:"mode"              jsonschema:"interactive, plan or autopilot"`
	Reason  string `json:"reason"            jsonschema:"why, for the person"`
	Confirm string `json:"confirm,omitempty" jsonschema:"is not read: the person confirms"`
}

func (t *toolset) setMode(ctx context.Context, in modeArgs) (string, error) {
	if !slices.Contains(gateway.Modes, in.Mode) {
		return "", fmt.Errorf("mode: %q is none of %s", in.Mode, strings.Join(gateway.Modes, ", "))
	}
	if strings.TrimSpace(in.Reason) == "" {
		return "", fmt.Errorf("reason: must say to the person why")
	}
	was, err := t.Session.Mode(ctx)
	if err != nil {
		return "", err
	}
	if was == in.Mode {
		return fmt.Sprintf("The session is in mode %s already.", was), nil
	}
	question := fmt.Sprintf("The model asks to change the session's mode from %s to %s",
		visible.Line(was), in.Mode)
	if err := t.ask(ctx, question, in.Reason, "the person refused to change the mode"); err != nil {
		return "", err
	}
	if err := t.Session.SetMode(ctx, in.Mode); err != nil {
		return "", err
	}
	return fmt.Sprintf("The session is in mode %s now.", in.Mode), nil
}
