package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/percent"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// HasProcess reports whether the process of the stage runs. One that has ended keeps its
// number until there is another.
func HasProcess(s supervisor.Status) bool { return s.PID > 0 && !IsGone(s.State) }

// IsGone reports whether a state is one without a process.
func IsGone(state string) bool {
	switch state {
	case supervisor.Down, lifecycle.BackingOff.String(), lifecycle.Failed.String(), lifecycle.Stopped.String():
		return true
	}
	return false
}

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
	if granted := s.Grants.String(); granted != "{}" {
		lines = append(lines, s.Stage+" is granted "+granted)
	}
	for _, lack := range s.IsolationLacks {
		lines = append(lines, fmt.Sprintf("%s is isolated only in part: this machine lacks %s", s.Stage, lack))
	}
	if !s.Required {
		lines = append(lines, s.Stage+" is not required: the server is ready without it")
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
		lines = append(lines, canaryRemark(s.Stage, *p))
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

// canaryRemark says in a line how a canary goes.
func canaryRemark(stage string, p supervisor.Probation) string {
	c := p.Canary
	next := fmt.Sprintf("the new process stays in %s", left(p.Until))
	if c.Step+1 < len(c.Shares) {
		next = fmt.Sprintf("%s in %s", percent.Format(c.Shares[c.Step+1]), left(c.Until))
	}
	return fmt.Sprintf("%s is a canary: %s of the requests, by %s, go to %s, the others to %s; %s",
		stage, percent.Format(c.Shares[c.Step]), c.By, p.To, p.From, next)
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
