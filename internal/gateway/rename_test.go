package gateway

import "testing"

// TestLabelIsPlain: whoever names a session, by its directory too, makes one line in which nothing
// is hidden.
func TestLabelIsPlain(t *testing.T) {
	g := New(Options{})
	label := "b\u202egpj.exe\nnew\x1b[31m"
	const want = `b\u202egpj.exe new\x1b[31m`
	s, err := g.Register(SessionSpec{Label: label}, HostInfo{Kind: "test"}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Drain(t.Context())
	if got := s.View().Label; got != want {
		t.Errorf("at the start the label is %q, want %q", got, want)
	}
	s.Update("other", "")
	if s.Update(label, ""); s.View().Label != want {
		t.Errorf("its host's label is %q, want %q", s.View().Label, want)
	}
	if err := s.Rename(t.Context(), "a\u202eb"); err != nil || s.View().Label != `a\u202eb` {
		t.Errorf("renamed it is %q, %v; want the character spelled out", s.View().Label, err)
	}
}
