package configs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"tapgw/internal/tapconfig"
	"tapgw/internal/visible"
)

// A project's tap.config.json gives the gateway emitters as provider files.

// tapFile returns the tap.config.json of a project's directory that counts; "" if there is no such
// file.
func tapFile(dir string) string {
	for _, rel := range tapconfig.Files {
		if file := filepath.Join(dir, filepath.FromSlash(rel)); !missing(file) {
			return file
		}
	}
	return ""
}

// emitters makes providers of the emitters in the trusted project's tap.config.json. unread is why
// its content could not be read, if so. An emitter gives way to a provider file that has its name,
// as one has after an import.
func (p TrustedProject) emitters(
	now content, unread error, isTaken func(name string) bool,
) (found []ProviderFile) {
	file := tapFile(p.Dir)
	if file == "" {
		return nil
	}
	rel := p.rel(file)
	changed := p.Files.firstDifference(now, rel)
	switch {
	case unread != nil:
	case now[rel].Text == nil: // the file is new, too large, or a pipe
		if _, unread = readFile(file); unread == nil {
			unread = p.changedError(rel)
		}
	case changed != "":
		unread = p.changedError(changed)
	}
	if unread != nil {
		leftOut := Fault{file, 1, 1, "a project's file, left out: " + unread.Error()}
		return []ProviderFile{leftOutTap(p.Dir, file, now[rel].Text, leftOut)}
	}
	for _, e := range readEmitters(p.Dir, file, now[rel].Text) {
		if isTaken(e.Name) {
			continue
		}
		if len(e.Faults) == 0 {
			e.Provider.Project, e.Provider.Digest = p.Dir, p.Files.digest(rel)
			e.Provider.Sessions.Below = p.Dir
		}
		found = append(found, e)
	}
	return found
}

// leftOutTap returns a tap.config.json that does not count, for the reason in leftOut. The faults
// of its text come first, because trusting the file is useless before they are cured.
func leftOutTap(dir, file string, text []byte, leftOut Fault) ProviderFile {
	p := ProviderFile{Name: tapconfig.FileName, File: file, Provider: &Provider{}, LeftOut: true}
	if text != nil {
		for _, e := range readEmitters(dir, file, text) {
			p.Faults = append(p.Faults, e.Faults...)
		}
	}
	p.Faults = append(p.Faults, leftOut)
	return p
}

// readEmitters makes a provider of each emitter of a tap.config.json, with a fault for each entry
// that can't be one. Each is the provider of the file that `tapctl sources import` would write, for
// all sessions of the project. Faults outside an emitter that has a name of its own go to a
// provider with the file's name, which comes first.
func readEmitters(dir, file string, text []byte) (found []ProviderFile) {
	whole := ProviderFile{Name: tapconfig.FileName, File: file, Provider: &Provider{}}
	at := func(p tapconfig.Position, format string, args ...any) Fault {
		// The user has not trusted the file yet, so its control characters are made visible.
		return Fault{file, p.Line, p.Column, visible.Line(fmt.Sprintf(format, args...))}
	}
	config, err := tapconfig.Parse(text)
	if err != nil {
		fault := at(tapconfig.Position{Line: 1, Column: 1}, "%v", err)
		if e, ok := errors.AsType[*tapconfig.Error](err); ok {
			fault = at(tapconfig.Position{Line: e.Line, Column: e.Column}, "%s", e.Message)
		}
		whole.Faults = Faults{fault}
		return []ProviderFile{whole}
	}
	for _, s := range config.Streams {
		if s.Reason != "" {
			whole.Faults = append(whole.Faults, at(s.At, "the stream %q: %s", s.Name, s.Reason))
		}
	}
	seen := map[string]bool{}
	for _, e := range config.Providers(dir) {
		p, faults := Provider{}, Faults{at(e.At, "the emitter %q: %s", e.Emitter, e.Reason)}
		if e.Reason == "" {
			p, faults = parseProvider(filepath.Join(dir, e.Name+providerSuffix), e.Text, true)
			// The faults' positions are in the translated text, which the user does not see.
			if len(faults) > 0 {
				faults = Faults{at(e.At, "the emitter %q: %s", e.Emitter, faults[0].Message)}
			}
		}
		if !providerName.MatchString(e.Name) || seen[e.Name] {
			whole.Faults = append(whole.Faults, faults...)
			continue
		}
		seen[e.Name] = true
		p.Name, p.Kind, p.File, p.Sessions.CWD = e.Name, KindSource, file, ""
		found = append(found, ProviderFile{Name: e.Name, File: file, Provider: &p, Faults: faults})
	}
	if len(whole.Faults) > 0 {
		found = append([]ProviderFile{whole}, found...)
	}
	return found
}

// whatTapCounts describes, for a person, the effect of a project's tap.config.json once it is
// trusted. The text is nil if it is too large.
func whatTapCounts(file, rel string, text []byte) string {
	dir := strings.TrimSuffix(file, filepath.FromSlash(rel))
	if tapFile(dir) != filepath.Join(dir, filepath.FromSlash(rel)) {
		return "nothing, because " + tapconfig.FileName + " counts before it"
	}
	if text == nil {
		return fmt.Sprintf("nothing, because it has more than %d KiB", maxFile>>10)
	}
	var does []string
	var faults Faults
	for _, e := range readEmitters(dir, file, text) {
		faults = append(faults, e.Faults...)
		switch s := e.Provider.Source; {
		case len(e.Faults) > 0:
		case !e.Provider.Enabled:
			does = append(does, e.Name+", which is not enabled")
		case s.Prompt != "":
			does = append(does, e.Name+", which prompts: "+s.Prompt)
		default:
			does = append(does, e.Name+", which runs "+s.Run[len(s.Run)-1])
		}
	}
	says := "nothing, because it has no emitters"
	switch {
	case len(does) > 0:
		says = "sessions here have the sources " + strings.Join(does, "; ")
		if len(faults) > 0 {
			says += "; left out: " + faults.Error()
		}
	case len(faults) > 0:
		says = "nothing yet: " + faults.Error()
	}
	return says
}
