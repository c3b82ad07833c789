package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// field is a field of an expression and the values that it means.
type field struct {
	text   string
	values []int
}

func drawField(t *rapid.T, name string, low, high int) field {
	all := func(step, from, to int) (values []int) {
		for v := from; v <= to; v += step {
			values = append(values, v)
		}
		return values
	}
	from := rapid.IntRange(low, high).Draw(t, name)
	switch rapid.IntRange(0, 4).Draw(t, name+" form") {
	case 0, 1:
		return field{"*", all(1, low, high)}
	case 2:
		return field{fmt.Sprint(from), []int{from}}
	case 3:
		step := rapid.IntRange(2, (high-low)/2).Draw(t, name+" step")
		return field{fmt.Sprintf("*/%d", step), all(step, low, high)}
	default:
		to := rapid.IntRange(from, high).Draw(t, name+" end")
		return field{fmt.Sprintf("%d-%d", from, to), all(1, from, to)}
	}
}

// reference is a clock that is looked at each minute.
type reference struct {
	fields     []field
	isInterval bool
}

func (r reference) matches(clock time.Time) bool {
	in := func(i, v int) bool { return slices.Contains(r.fields[i].values, v) }
	if !in(0, clock.Minute()) || !in(1, clock.Hour()) || !in(3, int(clock.Month())) {
		return false
	}
	day, weekday := in(2, clock.Day()), in(4, int(clock.Weekday()))
	if r.fields[2].text == "*" || r.fields[4].text == "*" {
		return day && weekday
	}
	return day || weekday
}

// due returns when the expression is due between two times, both at whole minutes.
func (r reference) due(from, to time.Time) (list []time.Time) {
	before := from.Add(-4 * time.Hour) // the clock may have been put back in between
	shown := clockOf(before)           // the latest time that the clock has shown
	for t := before.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		clock := clockOf(t)
		isDue := r.isInterval && r.matches(clock)
		for ; shown.Before(clock); shown = shown.Add(time.Minute) {
			isDue = isDue || !r.isInterval && r.matches(shown.Add(time.Minute))
		}
		if isDue && t.After(from) {
			list = append(list, t)
		}
	}
	return list
}

// Zones whose clocks change by an hour, by half an hour, at midnight, on the southern half of the
// world, and never; one that has left out a day, and one without summer time since 2022.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo",
	"Africa/Casablanca", "Pacific/Apia", "Asia/Tehran", "Asia/Kathmandu", "America/Santiago",
}

func TestNextIsWhatAClockShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := reference{fields: []field{
			drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23), drawField(t, "day", 1, 31),
			drawField(t, "month", 1, 12), drawField(t, "weekday", 0, 6),
		}}
		words := make([]string, len(r.fields))
		for i, f := range r.fields {
			words[i] = f.text
		}
		expression := strings.Join(words, " ")
		r.isInterval = strings.HasPrefix(words[0], "*") || strings.HasPrefix(words[1], "*")
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		c, err := ParseCron(expression, zone)
		if err != nil {
			if strings.Contains(err.Error(), "never due") { // such as the 30th of February
				return
			}
			t.Fatalf("ParseCron(%q, %q): %v", expression, zone, err)
		}
		// Ten years have some 20 changes of a clock; around one of them, or anywhere.
		start := time.Date(2010, 1, 1, 0, 0, 0, 0, c.zone).
			Add(time.Duration(rapid.IntRange(0, 10*365*24*60).Draw(t, "start")) * time.Minute)
		if _, end := start.ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "change") {
			start = end.Add(-time.Duration(rapid.IntRange(0, 3*60).Draw(t,
				"before")) * time.Minute).In(c.zone)
		}
		start = start.Truncate(time.Minute)
		checkNext(t, c, r, start, start.Add(2*24*time.Hour))
	})
}

// checkNext checks that a schedule is due between two times when the reference is.
func checkNext(t rapid.TB, c *Cron, r reference, start, end time.Time) {
	t.Helper()
	var words []string
	for _, f := range r.fields {
		words = append(words, f.text)
	}
	now := start
	for _, want := range r.due(start, end) {
		got := c.Next(now)
		if !got.Equal(want) {
			t.Fatalf("%q in %s after %s: %s, want %s", words, c.zone, now, got, want)
		}
		now = got
	}
	if got := c.Next(now); !got.IsZero() && !got.After(end) {
		t.Fatalf("%q in %s after %s: %s, want none before %s", words, c.zone, now, got, end)
	}
}

// TestNextOverTenYears goes from one due time to the next through ten years, in zones whose clocks
// change by an hour, by half an hour, and four times in a year.
func TestNextOverTenYears(t *testing.T) {
	t.Parallel()
	of := func(text string, values ...int) field { return field{text, values} }
	every := func(low, high int) field {
		f := of("*")
		for v := low; v <= high; v++ {
			f.values = append(f.values, v)
		}
		return f
	}
	days, months, weekdays := every(1, 31), every(1, 12), every(0, 6)
	for zone, fields := range map[string][]field{
		"Europe/Berlin":       {of("30", 30), of("2", 2), days, months, weekdays},
		"Australia/Lord_Howe": {of("*/20", 0, 20, 40), every(0, 23), days, months, weekdays},
		"Africa/Casablanca":   {of("45", 45), of("1-3", 1, 2, 3), days, months, of("0", 0)},
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			var words []string
			for _, f := range fields {
				words = append(words, f.text)
			}
			c, err := ParseCron(strings.Join(words, " "), zone)
			if err != nil {
				t.Fatal(err)
			}
			isInterval := strings.HasPrefix(words[0], "*") || strings.HasPrefix(words[1], "*")
			start := time.Date(2016, 1, 1, 0, 0, 0, 0, c.zone)
			checkNext(t, c, reference{fields, isInterval}, start, start.AddDate(10, 0, 0))
		})
	}
}

func TestNextAtAChangeOfTheClock(t *testing.T) {
	// On 2026-03-29 in Berlin, 02:00 becomes 03:00; on 2026-10-25, 03:00 becomes 02:00.
	tests := []struct {
		name, expression, after string
		want                    []string
	}{
		{"a time that is skipped", "30 2 * * *", "2026-03-29T00:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"times that are skipped count once", "10,50 2 * * *", "2026-03-29T00:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:10:00+02:00"}},
		{"a time that comes twice", "30 2 * * *", "2026-10-25T00:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"in the repeated hour", "30 2 * * *", "2026-10-25T02:10:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"an interval goes on", "*/30 * * * *", "2026-10-25T02:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00",
				"2026-10-25T02:30:00+01:00"}},
		{"an interval at a skip", "*/30 * * * *", "2026-03-29T01:20:00+01:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := ParseCron(test.expression, "Europe/Berlin")
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse(time.RFC3339, test.after)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if now = c.Next(now); now.Format(time.RFC3339) != want {
					t.Fatalf("Next: %s, want %s", now.Format(time.RFC3339), want)
				}
			}
		})
	}
}

func TestParseCronRefuses(t *testing.T) {
	tests := []struct{ name, expression, zone, want string }{
		{"four fields", "* * * *", "", "must have five fields"},
		{"six fields", "0 * * * * *", "", "must have five fields"},
		{"a word", "@daily", "", "must have five fields"},
		{"a zone in front", "TZ=Europe/Berlin * * * *", "", "must have five fields"},
		{"a minute too large", "60 * * * *", "", "60"},
		{"no number", "x * * * *", "", "x"},
		{"never", "0 0 30 2 *", "", "never due"},
		{"a zone that is none", "* * * * *", "Mars/Olympus", "no time zone"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseCron(test.expression, test.zone)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ParseCron(%q, %q): %v, want an error with %q", test.expression, test.zone,
					err, test.want)
			}
		})
	}
}

func TestNextInTheFarFuture(t *testing.T) {
	c, err := ParseCron("0 0 29 2 *", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, c.zone)
	for range 25 { // to 2128, over 2100, which has no leap day
		now = c.Next(now)
	}
	if got, want := now.Format(time.RFC3339), "2128-02-29T00:00:00+01:00"; got != want {
		t.Errorf("the 25th leap day from 2026 on: %s, want %s", got, want)
	}
}

func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{
		"* * * * *", "*/5 9-17 * * 1-5", "0 0 29 2 *", "@daily", "5/0 * * * *", "* * L * *",
		"* * * * 1#5", "? ? ? ? ?",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		c, err := ParseCron(expression, "Europe/Berlin")
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 28, 23, 59, 59, 0, time.UTC)
		for range 10 {
			next := c.Next(now)
			if next.IsZero() {
				return
			}
			if !next.After(now) || next.Second() != 0 {
				t.Fatalf("ParseCron(%q).Next(%s) = %s", expression, now, next)
			}
			now = next
		}
	})
}
