package sources_test

import (
	"slices"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/sources"
)

func TestNextRuns(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		text string
		want []string
	}{
		{"run = \"true\"\n", []string{"28 12:00"}},
		{"prompt = \"x\"\n", []string{"28 12:00"}},
		{"run = \"true\"\nevery = \"1h\"", []string{"28 12:00", "28 13:00", "28 14:00"}},
		{"prompt = \"x\"\nevery = [\"1h\", \"2h\"]", []string{"28 12:00", "28 13:00", "28 15:00"}},
		{"prompt = \"x\"\nevery = \"1h\"\nmax_runs = 2", []string{"28 12:00", "28 13:00"}},
		{"prompt = \"x\"\nidle = true\nmax_runs = 2", []string{"28 12:00"}},
		// the clock goes from 2 to 3 on the 29th
		{"prompt = \"x\"\ncron = \"0 2 * * *\"\nzone = \"Europe/Berlin\"",
			[]string{"29 01:00", "30 00:00", "31 00:00"}},
		{"prompt = \"x\"\nat = 2026-03-28T13:00:00Z", []string{"28 13:00"}},
		{"prompt = \"x\"\nat = 2026-03-28T11:00:00Z", nil},
		{"prompt = \"x\"\nat = 2026-03-28T11:00:00Z\nmissed = \"once\"", []string{"28 12:00"}},
		{"files = [\"*.go\"]", nil},
	}
	for _, test := range tests {
		p, faults := configs.ParseProvider("x.toml", []byte("kind = \"source\"\n"+test.text))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		next, err := sources.NextRuns(p.Source, now, 3)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range next {
			got = append(got, at.UTC().Format("02 15:04"))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.text, got, test.want)
		}
	}
}
