package taptools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/tapconfig"
	"tapgw/internal/visible"
	"tapgw/providers"
)

// This file has the tools that change or stop emitters, their filters and their injectors.

// Values of scope.
const (
	temporary  = "temporary"
	persistent = "persistent"
)

func scopeOf(words ...string) (string, error) {
	switch word := strings.ToLower(strings.TrimSpace(cmp.Or(words...))); word {
	case "", temporary:
		return temporary, nil
	case persistent:
		return persistent, nil
	default:
		return "", fmt.Errorf("scope: %q is neither temporary nor persistent", visible.Line(word))
	}
}

func isUserOwned(words ...string) (bool, error) {
	switch word := strings.ToLower(strings.TrimSpace(cmp.Or(words...))); word {
	case "", "modelowned":
		return false, nil
	case "userowned":
		return true, nil
	default:
		return false, fmt.Errorf("managedBy: %q is neither modelOwned nor userOwned",
			visible.Line(word))
	}
}

func ownership(isUsers bool) string {
	if isUsers {
		return "userOwned"
	}
	return "modelOwned"
}

func kindOf(p *configs.Provider) string {
	if p.Source.Prompt != "" {
		return "prompt"
	}
	return "command"
}

// persist asks the person, and writes a provider file, which the gateway then runs.
func (t *toolset) persist(ctx context.Context, f *tapconfig.ProviderFile) (string, error) {
	if err := t.ask(ctx, fmt.Sprintf("May the session add the source %s, which stays after it?",
		f.Name),
		string(f.Text), "the person refused"); err != nil {
		return "", err
	}
	file, err := t.Emitters.Save(f.Name, f.Text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Defined emitter '%s'.\nlifespan=persistent\nownership=userOwned\nfile=%s",
		f.Name, visible.Line(file)), nil
}

// ask asks the person for a permission. An error begins with refused if the person says no.
func (t *toolset) ask(ctx context.Context, message, detail, refused string) error {
	call, _ := providers.CallFrom(ctx)
	a, err := t.Session.Ask(ctx, gateway.Question{
		Kind: adminapi.QuestionPermission, Message: message, Detail: detail, Timeout: modeTimeout,
		Call: call.ID,
	})
	if err != nil {
		return err
	}
	if a.Denied() {
		return errors.New(strings.TrimSuffix(refused+": "+a.Text, ": "))
	}
	return nil
}

// find returns an emitter that the model may change.
func (t *toolset) find(name string, force bool) (*emitter, error) {
	short := tapconfig.Name(name)
	t.mu.Lock()
	e := t.emitters[prefix+short]
	isUsers := e != nil && e.isUsers
	t.mu.Unlock()
	switch {
	case isUsers && !force:
		return nil, userControlled("emitter", short)
	case e != nil:
		return e, nil
	}
	for _, s := range t.Emitters.Sources() {
		if s.Name == short && s.File != "" {
			return nil,
				fmt.Errorf("a file defines '%s', so only a person changes it: tapctl sources",
					short)
		}
	}
	return nil, providers.NotFound("there is no emitter '%s': tap_list_emitters lists them", short)
}

func (t *toolset) stop(ctx context.Context, in stopArgs) (string, error) {
	scope, err := scopeOf(in.Scope, in.Lifespan)
	if err != nil {
		return "", err
	}
	short := tapconfig.Name(in.Name)
	if scope == persistent {
		err := t.ask(ctx, fmt.Sprintf("May the session remove the source %s for good?", short),
			short, "the person refused")
		if err == nil {
			err = t.Emitters.Remove(short)
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("Removed emitter '%s'.", short), nil
	}
	e, err := t.find(in.Name, in.Force)
	if err != nil {
		return "", err
	}
	e.cancel()
	select {
	case <-e.ended:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	t.mu.Lock()
	if t.emitters[e.provider.Name] == e {
		delete(t.emitters, e.provider.Name)
		e.closeLog()
	}
	t.mu.Unlock()
	t.tell(e.provider, "stopped", false)
	return fmt.Sprintf("Stopped emitter '%s'.", short), nil
}

type filterArgs struct {
	Name           string `json:"name"                     jsonschema:"the emitter's name"`
	Rules          any    `json:"rules,omitempty"          jsonschema:"a list of {match, outcome}; the first that matches decides: drop, keep, surface or inject"`
	EventFilter    any    `json:"eventFilter,omitempty"    jsonschema:"the same as rules"`
	IncludePattern string `json:"includePattern,omitempty" jsonschema:"a regular expression: other lines are dropped"`
	ExcludePattern string `json:"excludePattern,omitempty" jsonschema:"a regular expression: such lines are dropped"`
	NotifyPattern  string `json:"notifyPattern,omitempty"  jsonschema:"a regular expression: such lines wake the session"`
	Scope          string `json:"scope,omitempty"          jsonschema:"temporary"`
	Lifespan       string `json:"lifespan,omitempty"       jsonschema:"the same as scope"`
	ManagedBy      string `json:"managedBy,omitempty"      jsonschema:"modelOwned or userOwned: whose the emitter is from now on"`
	Ownership      string `json:"ownership,omitempty"      jsonschema:"the same as managedBy"`
	Force          bool   `json:"force,omitempty"          jsonschema:"change a userOwned emitter, because the user says so"`
}

func (t *toolset) setFilter(_ context.Context, in filterArgs) (string, error) {
	isUsers, err := isUserOwned(in.ManagedBy, in.Ownership)
	if err != nil {
		return "", err
	}
	if scope, err := scopeOf(in.Scope, in.Lifespan); err != nil || scope == persistent {
		return "", cmp.Or(err, fmt.Errorf("only a person changes what a file defines"))
	}
	e, err := t.find(in.Name, in.Force)
	if err != nil {
		return "", err
	}
	spec := maps.Clone(e.spec)
	for _, key := range []string{"eventFilter", "classifier", "includePattern", "excludePattern",
		"notifyPattern"} {
		delete(spec, key)
	}
	rules := in.Rules
	if rules == nil {
		rules = in.EventFilter
	}
	if rules != nil {
		spec["eventFilter"] = rules
	}
	for key, pattern := range map[string]string{"includePattern": in.IncludePattern,
		"excludePattern": in.ExcludePattern, "notifyPattern": in.NotifyPattern} {
		if pattern != "" {
			spec[key] = pattern
		}
	}
	p, _, err := t.newSource(spec)
	if err != nil {
		return "", err
	}
	if err := t.apply(e, p, spec, isUsers); err != nil {
		return "", err
	}
	counts, err := t.Emitters.Try(p, t.rowsOf(p))
	if err != nil {
		return "", err
	}
	var would []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		would = append(would, fmt.Sprintf("%s=%d", outcome, counts[outcome]))
	}
	return fmt.Sprintf("Set the filter of emitter '%s'. Of the events so far: %s",
		tapconfig.Name(in.Name), cmp.Or(strings.Join(would, " "), "none")), nil
}

// rowsOf returns the events in the stream that an emitter has made.
func (t *toolset) rowsOf(p *configs.Provider) (rows []adminapi.StreamRow) {
	for _, row := range t.Session.History([]string{p.Source.Stream + "@" + p.Name}, 0,
		time.Time{}) {
		rows = append(rows, row.StreamRow)
	}
	return rows
}

// apply makes an emitter filter as another version of it says.
func (t *toolset) apply(e *emitter, p *configs.Provider, spec map[string]any, isUsers bool) error {
	if _, err := t.Emitters.SetFilter(p.Name, p.Source.Filter, p.Source.Level); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e.spec, e.isUsers = spec, e.isUsers || isUsers
	return nil
}

type injectorArgs struct {
	Channel     string `json:"channel"               jsonschema:"the stream"`
	Description string `json:"description,omitempty" jsonschema:"what the stream is for"`
	Delivery    string `json:"delivery,omitempty"    jsonschema:"important (as the filters say; if left out), all, inject, surface, keep or drop"`
	Scope       string `json:"scope,omitempty"       jsonschema:"temporary: until the session ends"`
	Lifespan    string `json:"lifespan,omitempty"    jsonschema:"the same as scope"`
	ManagedBy   string `json:"managedBy,omitempty"   jsonschema:"modelOwned, or userOwned if only the person's word may change it"`
	Ownership   string `json:"ownership,omitempty"   jsonschema:"the same as managedBy"`
	Force       bool   `json:"force,omitempty"       jsonschema:"change a userOwned injector, because the user says so"`
}

func (t *toolset) enableInjector(_ context.Context, in injectorArgs) (string, error) {
	if in.Delivery == "" {
		in.Delivery = tapconfig.DeliveryImportant
	}
	return t.setInjector(in, true)
}

func (t *toolset) disableInjector(_ context.Context, in injectorArgs) (string, error) {
	return t.setInjector(in, false)
}

func (t *toolset) setInjector(in injectorArgs, enabled bool) (string, error) {
	stream, err := streamName(in.Channel)
	if err != nil {
		return "", err
	}
	isUsers, err := isUserOwned(in.ManagedBy, in.Ownership)
	if err != nil {
		return "", err
	}
	if scope, err := scopeOf(in.Scope, in.Lifespan); err != nil || scope == persistent {
		return "", cmp.Or(err, fmt.Errorf("only a person changes what outlives the session"))
	}
	if err := t.putInjector(stream, injector{enabled, in.Delivery, isUsers}, in.Force); err != nil {
		return "", err
	}
	if in.Description != "" {
		t.describe(stream, in.Description)
	}
	if err := t.refilter(stream); err != nil {
		return "", err
	}
	if !enabled {
		return fmt.Sprintf(
			"Disabled the injector of stream '%s': your emitters' events stay in it.", stream), nil
	}
	return fmt.Sprintf("Enabled the injector of stream '%s' for your emitters.\ndelivery=%s",
		stream, in.Delivery), nil
}

// subscribe gives a stream the injector that a new emitter asks for, unless it has one.
func (t *toolset) subscribe(stream string, enabled bool, delivery string) error {
	t.mu.Lock()
	has := t.injectors[stream] != nil
	t.mu.Unlock()
	if has && delivery == "" {
		return nil
	}
	if err := t.putInjector(stream, injector{
		enabled: enabled, delivery: cmp.Or(delivery, tapconfig.DeliveryImportant),
	}, false); err != nil {
		return err
	}
	return t.refilter(stream)
}

func (t *toolset) putInjector(stream string, in injector, force bool) error {
	in.delivery = cmp.Or(strings.ToLower(strings.TrimSpace(in.delivery)), tapconfig.DeliverySurface)
	if !slices.Contains(tapconfig.Deliveries, in.delivery) {
		return fmt.Errorf("delivery: %q is none of %s", visible.Line(in.delivery),
			strings.Join(tapconfig.Deliveries, ", "))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	has := t.injectors[stream]
	switch {
	case has != nil && has.isUsers && !force:
		return userControlled("injector of the stream", stream)
	case has == nil && len(t.injectors) >= maxInjectors:
		return fmt.Errorf("%d streams have injectors, which is the limit", maxInjectors)
	}
	t.injectors[stream] = &in
	return nil
}

// refilter makes all emitters of a stream do as its injector says now.
func (t *toolset) refilter(stream string) error {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.emitters))
	t.mu.Unlock()
	for _, e := range all {
		if e.provider.Source.Stream != stream {
			continue
		}
		t.mu.Lock()
		spec := e.spec
		t.mu.Unlock()
		p, _, err := t.newSource(spec)
		if err == nil {
			err = t.apply(e, p, spec, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *toolset) listEmitters(context.Context, struct{}) (string, error) {
	states := t.states()
	t.mu.Lock()
	all := maps.Clone(t.emitters)
	t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "Emitters (%d):", len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e, now := all[name], states[name]
		accepted, dropped := t.Emitters.Counts(name)
		status, reason := now.State, now.Reason
		select {
		case <-e.ended:
			status, reason = "error", e.reason
		default:
			status = cmp.Or(status, "queued")
		}
		t.mu.Lock()
		isUsers := e.isUsers
		t.mu.Unlock()
		fmt.Fprintf(&b,
			"\n- %s: type=%s status=%s stream=%s lifespan=temporary ownership=%s runs=%d "+
				"acceptedLines=%d "+
				"droppedLines=%d", strings.TrimPrefix(name, prefix), kindOf(e.provider), status,
			e.provider.Source.Stream, ownership(isUsers), now.Runs, accepted, dropped)
		if !now.LastRunAt.IsZero() {
			fmt.Fprintf(&b, " lastRunAt=%s", now.LastRunAt.UTC().Format(time.RFC3339))
		}
		if !now.NextRunAt.IsZero() {
			fmt.Fprintf(&b, " nextRunAt=%s", now.NextRunAt.UTC().Format(time.RFC3339))
		}
		if reason != "" {
			fmt.Fprintf(&b, " reason=%q", visible.Line(reason))
		}
	}
	b.WriteString("\nPersistent emitter definitions:")
	for _, s := range t.Emitters.Sources() {
		if s.File != "" {
			fmt.Fprintf(&b,
				"\n- %s: kind=%s status=%s stream=%s lifespan=persistent "+
					"ownership=userOwned runs=%d", oneWord(s.Name), s.Kind, s.State, s.Stream,
				s.Runs)
		}
	}
	return b.String(), nil
}
