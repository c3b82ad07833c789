// Package schedule says when a cron expression is due, in a time zone. It has no timers.
package schedule

import (
	"fmt"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// Cron is a cron expression of five fields in a time zone: minute, hour, day of the month, month
// and day of the week. Names of months and days, ranges, lists and steps are allowed. If both days
// are restricted, one of them suffices.
//
// When the zone's clock changes, an expression whose minute or hour begins with * is due at each
// minute that the clock shows and that matches. Any other expression means times of a day: one that
// the clock skips is due as soon as the clock goes on, and one that it shows twice is due the first
// time.
type Cron struct {
	fields     cron.Schedule // judges times as if they were in UTC
	zone       *time.Location
	isInterval bool
}

// searchYears is how far ahead a due time is looked for. Between two leap days are at most eight
// years.
const searchYears = 9

// ParseCron reads an expression and the name of its zone, as IANA's database has it; "" is UTC, and
// "Local" the system's zone. An expression that is never due is an error.
func ParseCron(expression, zone string) (*Cron, error) {
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil,
			ZoneError{fmt.Errorf(
				"%q is no time zone that this machine knows, such as Europe/Berlin", zone)}
	}
	if fields := strings.Fields(expression); len(fields) != 5 || strings.Contains(expression, "=") {
		return nil, fmt.Errorf(
			"%q must have five fields: minute, hour, day of the month, month, day of the week",
			expression)
	}
	parser := cron.MustNewParser(
		cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom).
		WithMaxSearchYears(searchYears)
	fields, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", expression, err)
	}
	words := strings.Fields(expression)
	c := &Cron{
		fields: fields, zone: location,
		isInterval: strings.HasPrefix(words[0], "*") || strings.HasPrefix(words[1], "*"),
	}
	if fields.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("%q is never due", expression)
	}
	return c, nil
}

// ZoneError is the error of [ParseCron] about the zone's name.
type ZoneError struct{ error }

// Next returns the first time after t when the expression is due, in the expression's zone. It is
// zero if there is no such time in the next years.
func (c *Cron) Next(t time.Time) time.Time {
	t = t.In(c.zone)
	if c.isInterval {
		return c.nextShown(t)
	}
	return c.nextOfDay(t)
}

// nextShown returns the first minute after t that the clock shows and that matches.
func (c *Cron) nextShown(t time.Time) time.Time {
	for {
		_, end := bounds(t)
		want := c.fields.Next(clockOf(t))
		if want.IsZero() {
			return want
		}
		due := onClock(want, offsetOf(t)).In(c.zone)
		if end.IsZero() || due.Before(end) {
			return due
		}
		t = end
		if c.matches(t) {
			return t
		}
	}
}

// nextOfDay returns the first time after t at which the clock reaches, or jumps over, a matching
// time for the first time.
func (c *Cron) nextOfDay(t time.Time) time.Time {
	reached := clockOf(t)
	if start, _ := bounds(t); !start.IsZero() {
		// The clock was put back: it has shown the times up to the change.
		if before := clockOf(start.Add(-1).In(c.zone)); reached.Before(before) {
			reached = before
		}
	}
	want := c.fields.Next(reached)
	if want.IsZero() {
		return want
	}
	for {
		start, end := bounds(t)
		due := onClock(want, offsetOf(t)).In(c.zone)
		switch {
		case due.Before(start):
			return start.In(c.zone) // the clock has skipped it
		case end.IsZero() || due.Before(end):
			return due
		}
		t = end.In(c.zone)
	}
}

// bounds returns when the clock was changed last before t and when it is changed next; zero for
// never. A bound may also be a time at which the clock is not changed.
func bounds(t time.Time) (start, end time.Time) {
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// From 2038 on package time counts 365 days for each year, so the last day of a leap year
		// has no end.
		end = t.Truncate(24 * time.Hour).Add(24 * time.Hour).In(t.Location())
	}
	return start, end
}

// matches reports whether the clock shows a due time at t.
func (c *Cron) matches(t time.Time) bool {
	clock := clockOf(t)
	return c.fields.Next(clock.Add(-1)).Equal(clock)
}

// clockOf returns the time that the clock shows at t, as a time in UTC.
func clockOf(t time.Time) time.Time {
	return t.UTC().Add(offsetOf(t))
}

// onClock returns the time at which a clock that is ahead of UTC by offset shows clock.
func onClock(clock time.Time, offset time.Duration) time.Time { return clock.Add(-offset) }

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
