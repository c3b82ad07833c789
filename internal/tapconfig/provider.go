package tapconfig

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/visible"
)

// ProviderFile is the text of a provider file of kind source, with the emitter that it is made of
// and the name of the provider. Notes list the settings of the emitter that the file lacks. Reason
// says why there is no file, and is "" if there is one.
type ProviderFile struct {
	Emitter string
	Name    string
	Text    []byte
	Notes   []string
	Reason  string
	At      Position // of the emitter in the file
}

// idleRuns bounds a prompt that comes whenever the session is idle, if the emitter has no bound of
// its own.
const idleRuns = 10

// Providers makes a provider file of each emitter that can be one. dir is the project's directory,
// absolute: commands run there, and the sources are for sessions in it.
func (c *Config) Providers(dir string) (files []ProviderFile) {
	for _, e := range c.Emitters {
		f := ProviderFile{Emitter: e.Name, Name: providerName(e.Name), Reason: e.Reason, At: e.At}
		switch {
		case f.Reason != "":
		case f.Name == "":
			f.Reason = "its name has no letter and no digit"
		case e.CWD != "" && !filepath.IsLocal(e.CWD):
			f.Reason = fmt.Sprintf("its cwd %q leads out of the project", e.CWD)
		default:
			c.fill(&f, e, dir)
		}
		files = append(files, f)
	}
	return files
}

func providerName(name string) string {
	name = strings.TrimLeft(name, "._-")
	return name[:min(len(name), 64)]
}

// source is a provider file of kind source.
type source struct {
	Kind     string            `toml:"kind"`
	Run      []string          `toml:"run,omitempty"`
	Prompt   string            `toml:"prompt,omitempty"`
	CWD      string            `toml:"cwd,omitempty"`
	Every    any               `toml:"every,omitempty"`
	Idle     bool              `toml:"idle,omitempty"`
	MaxRuns  int               `toml:"max_runs,omitempty"`
	Stderr   *bool             `toml:"stderr,omitempty"`
	Stream   string            `toml:"stream,omitempty"`
	Level    string            `toml:"level,omitempty"`
	Enabled  *bool             `toml:"enabled,omitempty"`
	Sessions map[string]string `toml:"sessions"`
	Filter   []filterRule      `toml:"filter,omitempty"`
}

type filterRule struct {
	Match   string `toml:"match"`
	Outcome string `toml:"outcome"`
}

func (c *Config) fill(f *ProviderFile, e Emitter, dir string) {
	note := func(format string, args ...any) {
		f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
	}
	s := source{
		Kind: "source", Prompt: e.Prompt, Idle: e.Idle, MaxRuns: e.MaxRuns,
		Stream:   providerName(e.Stream),
		Sessions: map[string]string{"cwd": globSign.ReplaceAllString(dir, `\$0`)},
	}
	for _, every := range e.Every {
		if list, _ := s.Every.([]string); len(e.Every) > 1 {
			s.Every = append(list, every.String())
		} else {
			s.Every = every.String()
		}
	}
	if e.Command != "" {
		s.Run = []string{"bash", "-lc", e.Command}
		s.CWD, s.Level = filepath.Join(dir, e.CWD), DeliveryKeep
		if !e.Stderr {
			s.Stderr = new(false)
		}
		c.deliver(&s, e, note)
	} else if len(e.Filter) > 0 {
		note("the filter is left out: a prompt is not filtered")
	}
	if e.Idle && e.MaxRuns == 0 {
		s.MaxRuns = idleRuns
		note("max_runs = %d bounds the prompts: the emitter had no bound; 0 is without end",
			idleRuns)
	}
	if !e.AutoStart {
		s.Enabled = new(false)
	}
	if e.ModelOwned {
		note("the model can't change it: a provider file is a person's")
	}
	text := bytes.NewBufferString("# tapctl sources import wrote this file. " +
		"`tapgw config schema provider` describes all keys.\n")
	if e.Description != "" {
		text.WriteString("# " + visible.Line(e.Description) + "\n")
	}
	encoder := toml.NewEncoder(text)
	encoder.Indent = ""
	_ = encoder.Encode(s) // texts, numbers and lists have a form in TOML
	f.Text = text.Bytes()
}

// globSign is a character with a special meaning in a glob.
var globSign = lazyregexp.New(`[*?\[\]{}\\]`)

// deliver sets the handling of lines: the filter decides, within the limits of the stream's
// injector.
func (c *Config) deliver(s *source, e Emitter, note func(string, ...any)) {
	for _, r := range e.Filter {
		s.Filter = append(s.Filter, filterRule{r.Pattern(), r.Outcome})
	}
	at := slices.IndexFunc(c.Streams, func(s Stream) bool {
		return s.Name == e.Stream && s.Reason == ""
	})
	if at < 0 || c.Streams[at].Injector == nil {
		return
	}
	become := func(from, to string) {
		for i := range s.Filter {
			if s.Filter[i].Outcome == from {
				s.Filter[i].Outcome = to
			}
		}
	}
	switch injector := c.Streams[at].Injector; {
	case !injector.Enabled, injector.Delivery == DeliveryKeep:
		become("surface", "keep")
		become("inject", "keep")
		note("nothing of the stream %q is given to the session by itself, as its injector says",
			e.Stream)
	case injector.Delivery == DeliveryDrop:
		s.Filter = []filterRule{{".*", DeliveryDrop}}
		note("all events are dropped, as the injector of the stream %q says", e.Stream)
	case injector.Delivery == DeliveryAll:
		become("keep", "inject")
		become("surface", "inject")
		s.Level = DeliveryInject
		note(
			"every event becomes a prompt, as the injector of the stream %q says: level says "+
				"it for lines "+
				"without a rule", e.Stream)
	}
}
