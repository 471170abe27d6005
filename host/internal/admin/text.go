package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/percent"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// HasProcess reports whether the process of the stage runs. One that has ended keeps its
// number until there is another.
func HasProcess(s supervisor.Status) bool { return s.PID > 0 && !s.State.Gone() }

// NextStart returns when a stage without a process gets one.
func NextStart(s supervisor.Status) string {
	if HasProcess(s) || s.NextStart.IsZero() {
		return ""
	}
	if left := time.Until(s.NextStart); left > 0 {
		return fmt.Sprintf(" (next start in %s)", max(left, time.Second).Round(time.Second))
	}
	return " (starting)"
}

// Remarks say what else is to be known of a stage.
func Remarks(s supervisor.Status) []string {
	var lines []string
	if s.Attached {
		lines = append(lines, s.Stage+" is a process that was started by hand; this host never kills it")
	}
	for _, lack := range s.IsolationLacks {
		lines = append(lines, fmt.Sprintf("%s is isolated only in part: this machine lacks %s", s.Stage, lack))
	}
	if s.Emulates != "" {
		lines = append(lines, fmt.Sprintf("%s serves as Kubernetes %s until catena upgrade finalize %[1]s", s.Stage, s.Emulates))
	}
	if s.OtherRelease != "" {
		lines = append(lines, s.Stage+" was "+s.OtherRelease)
	}
	if s.StandbyFailure != "" {
		lines = append(lines, fmt.Sprintf("%s has no standby: %s", s.Stage, s.StandbyFailure))
	}
	if p := s.Probation; p != nil && p.Canary != nil {
		lines = append(lines, canaryRemarks(s.Stage, *p)...)
	} else if p != nil {
		lines = append(lines, fmt.Sprintf("%s is on probation for %s: %d of %d requests have failed; %s would take over again",
			s.Stage, time.Until(p.Until).Round(time.Second), p.Failed, p.Requests, p.From))
	}
	if l := s.LastSwap; l != nil {
		line := fmt.Sprintf("last swap of %s %s ago: %s: %s", s.Stage, Age(l.At), l.Result, l.Reason)
		lines = append(lines, strings.TrimSuffix(line, ": "))
	}
	if s.Failure != "" {
		lines = append(lines, "last failure of "+s.Failure)
	}
	return lines
}

// Settings are the lines about a stage that say what the configuration makes it, and never change.
func Settings(s supervisor.Status) []string {
	var lines []string
	if granted := s.Grants.String(); granted != "{}" {
		lines = append(lines, s.Stage+" is granted "+granted)
	}
	if !s.Required {
		lines = append(lines, s.Stage+" is not required: the server is ready without it")
	}
	return lines
}

// Watches says how many watches of clients a stage serves, and how many of them do not outlive its process.
func Watches(l relay.Load) string {
	if l.Watches == l.Resumable {
		return strconv.Itoa(l.Watches)
	}
	return fmt.Sprintf("%d (%d not resumable)", l.Watches, l.Watches-l.Resumable)
}

// canaryRemarks say how a canary goes, and how the two sides do.
func canaryRemarks(stage string, p supervisor.Probation) []string {
	c := p.Canary
	next := fmt.Sprintf("the new process stays in %s", left(p.Until))
	switch {
	case c.Step+1 >= len(c.Shares): // the last step
	case !c.Waits:
		next = fmt.Sprintf("%s in %s", percent.Format(c.Shares[c.Step+1]), left(c.Until))
	default:
		next = fmt.Sprintf("it waits with %s until %d more requests have come to %s, or for \"catena swap %s --promote\" or \"--rollback\"",
			percent.Format(c.Shares[c.Step+1]), c.Difference.Lacking(), p.To, stage)
	}
	share := c.By.Share(c.Shares[c.Step])
	return []string{
		fmt.Sprintf("%s is a canary: %s go to %s, the others to %s; %s", stage, share, p.To, p.From, next),
		fmt.Sprintf("%s in this step: %s", stage, step(p.To, share, c.Difference)),
	}
}

// step says how the new process of a canary does, beside the old one.
func step(generation, share string, d canary.Difference) string {
	all := d.Old.Requests + d.New.Requests
	if all == 0 {
		return "no request has come yet"
	}
	had := fmt.Sprintf("%s have made %d of %d requests (%.0f%%), of which %s has failed %d and refused %d",
		share, d.New.Requests, all, 100*float64(d.New.Requests)/float64(all), generation, d.New.Failed, d.New.Refused)
	lacking := d.Lacking()
	switch {
	case lacking > 0:
		return fmt.Sprintf("%s; to compare them, there must be %d more", had, lacking)
	case !d.Says():
		return had + "; there is nothing to compare: the old process has had too few of these kinds"
	}
	compared := ""
	if d.Compared < d.New.Requests {
		compared = fmt.Sprintf(" (%d, the old process has had too few of the kinds of the others)", d.Compared)
	}
	return fmt.Sprintf("%s; like for like%s, there are %s errors, %s refused writes and %s latency",
		had, compared, signed(d.Failed), signed(d.Refused), signed(d.Latency))
}

// signed writes a difference.
func signed(d float64) string {
	text := percent.Format(d)
	if text[0] != '-' {
		text = "+" + text
	}
	return text
}

// State is the state of a stage as operators read it: what share of the requests its process has in a canary, and when
// a stage without a process gets one.
func State(s supervisor.Status) string {
	if share, ok := canaryShare(s); ok && HasProcess(s) {
		return "canary " + percent.Format(share)
	}
	return string(s.State) + NextStart(s)
}

// Role is what a process of a stage is besides the one that serves.
func Role(s supervisor.Status, g supervisor.Generation) string {
	if s.Probation == nil || s.Probation.From != g.Generation {
		return "other"
	}
	if share, ok := canaryShare(s); ok && share < 1 {
		return "old " + percent.Format(1-share)
	}
	return "kept"
}

// canaryShare is the share of the requests that the new process of a canary has.
func canaryShare(s supervisor.Status) (share float64, ok bool) {
	if s.Probation == nil || s.Probation.Canary == nil {
		return 0, false
	}
	return s.Probation.Canary.Shares[s.Probation.Canary.Step], true
}

// Restarts is how often the process of a stage was replaced after its end, and how many starts have failed in a row since.
func Restarts(s supervisor.Status) string {
	if s.Failures == 0 || HasProcess(s) {
		return strconv.Itoa(s.Restarts)
	}
	return fmt.Sprintf("%d, %d failed", s.Restarts, s.Failures)
}

func left(until time.Time) time.Duration { return max(0, time.Until(until)).Round(time.Second) }

// Age is how long ago something was, "-" if it was never.
func Age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return max(0, time.Since(since)).Round(time.Second).String() // the clock may have been set
}

// Rate is a number per second.
func Rate(perSecond float64) string {
	if perSecond > 0 && perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

// Share is a part of a whole, from 0 to 1, in percent.
func Share(of float64) string {
	if of > 0 && of < 0.1 {
		return fmt.Sprintf("%.2g%%", 100*of)
	}
	return fmt.Sprintf("%.0f%%", 100*of)
}
