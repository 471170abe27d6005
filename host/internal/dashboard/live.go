package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
)

// live is what changes with the chain, in the words and figures of the page.
type live struct {
	Host   admin.HostStatus
	Uptime string
	// Mood is good, busy or bad, and Summary says why in a sentence.
	Mood, Summary string
	Stages        []stageView
	Remarks       []string
	Checks        []checkView
	Failing       int
	Events        []eventView
	Changes       []changeView
	Claims        []claimsView
	ClaimCount    int
	// Shown reports whether the claims are not to be folded.
	Shown bool
	// Latest is the latest event, for screen readers.
	Latest string
}

type stageView struct {
	Name, State, Mood, Since, Version string
	Figures                           []figure
	Processes                         []processView
	// Sides are what the two processes of a canary have had in its present step, all requests first.
	Sides   []sideView
	Remarks []string
	// Hops are where its requests come from, besides the host.
	Hops []hopView
	// Direct is what comes straight from the host; Passing is what goes from the host to stages downstream.
	Direct, Passing flow
	Last            bool
}

// figure is a name and a value.
type figure struct{ Name, Value string }

// processView is a process of a stage besides the one that serves.
type processView struct{ Role, Generation, State, Mood, Since, Memory string }

// sideView is what a process of a canary has had of a kind of requests.
type sideView struct{ Kind, Process, Requests, Errors, Refused, Mean, Longest string }

type hopView struct {
	From string
	flow
}

// flow is how many requests take a way, and how wide it is drawn.
type flow struct {
	Rate  string
	Width float64
}

type checkView struct {
	Name, Mood, Text string
}

type eventView struct{ Stage, Text, Took, Ago, At, Mood string }

type changeView struct{ By, What, Took, Ago, At, Error string }

type claimsView struct {
	Stage string
	Texts []string
}

// newLive describes a status. Of the claims, it has those that contain a text.
func newLive(s admin.Status, find string) *live {
	l := &live{Host: s.Host, Uptime: admin.Age(s.Host.Since), Shown: find != ""}
	l.addStages(s)
	for _, c := range s.Checks {
		l.addCheck(c)
	}
	slices.SortStableFunc(l.Checks, func(a, b checkView) int { return cmp.Compare(a.Mood, b.Mood) }) // bad, busy, good
	for _, e := range slices.Backward(s.Events) {
		l.Events = append(l.Events, eventView{
			Stage: e.Stage, Text: e.Text, Took: seconds(e.TookSeconds), Ago: admin.Age(e.At), At: stamp(e.At),
			Mood: moodIf(e.Bad, "bad", "good"),
		})
	}
	if len(l.Events) > 0 {
		l.Latest = strings.TrimSpace(l.Events[0].Stage + " " + l.Events[0].Text)
	}
	for _, c := range slices.Backward(s.Changes) {
		l.Changes = append(l.Changes, changeView{By: c.By, What: "catena " + c.What, Took: seconds(c.TookSeconds),
			Ago: admin.Age(c.At), At: stamp(c.At), Error: c.Error})
	}
	for _, st := range s.Stages {
		found := claimsView{Stage: st.Stage}
		for _, text := range s.Claims[st.Stage] {
			if strings.Contains(text, find) || strings.Contains(st.Stage, find) {
				found.Texts = append(found.Texts, text)
			}
		}
		l.ClaimCount += len(found.Texts)
		l.Claims = append(l.Claims, found)
	}
	if s.LastReload != nil {
		l.Remarks = append(l.Remarks, "Configuration read "+admin.Age(s.LastReload.At)+" ago "+s.LastReload.String()+".")
	}
	if sh := s.Shadow; sh != nil {
		l.Remarks = append(l.Remarks, fmt.Sprintf("%s is shadowed by %s for another %s: %d requests compared, %d different.",
			sh.Stage, sh.Binary, time.Until(sh.Until).Round(time.Second), sh.Compared, sh.Different))
	}
	l.summarize(s)
	return l
}

func (l *live) addStages(s admin.Status) {
	of := map[string]traffic.Stage{}
	for _, t := range s.Traffic {
		of[t.Stage] = t
	}
	loads := map[string]relay.Load{}
	for _, l := range s.Load {
		loads[l.Stage] = l
	}
	passing := 0.0 // from the host to this stage and those downstream
	for _, t := range s.Traffic {
		passing += fromHost(t)
	}
	for i, st := range s.Stages {
		t := of[st.Stage]
		passing -= fromHost(t)
		v := stageView{
			Name: st.Stage, State: admin.State(st), Mood: string(st.State.Severity()), Since: admin.Age(st.Since), Version: st.Version,
			Direct: flowOf(fromHost(t)), Passing: flowOf(max(0, passing)), Remarks: admin.Remarks(st), Last: i == len(s.Stages)-1,
			Figures: []figure{
				{"Requests", rate(t.PerSecond)}, {"Errors", admin.Share(t.FailedShare)}, {"p50", seconds(t.P50)}, {"p99", seconds(t.P99)},
				{"Watches", admin.Watches(loads[st.Stage])},
				{"Memory", memory(st.Usage)}, {"CPU", cpu(st.Usage)}, {"Restarts", admin.Restarts(st)},
				{"Process", process(st)}, {"Isolation", isolated(st)}, {"Claims", fmt.Sprint(st.Claims)},
			},
		}
		for _, h := range t.From {
			if h.From != "" {
				v.Hops = append(v.Hops, hopView{h.From, flowOf(h.PerSecond)})
			}
		}
		if st.Standby != nil {
			v.Processes = append(v.Processes, processOf("standby", *st.Standby))
		}
		for _, g := range st.Others {
			v.Processes = append(v.Processes, processOf(admin.Role(st, g), g))
		}
		if p := st.Probation; p != nil && p.Canary != nil {
			v.Sides = sidesOf(p)
		}
		l.Stages = append(l.Stages, v)
	}
}

// maxKinds is how many kinds of requests of a canary are shown; catena status has more.
const maxKinds = 4

// sidesOf are two rows for each kind, under the same headings.
func sidesOf(p *supervisor.Probation) []sideView {
	var all []sideView
	add := func(kind string, old, next canary.Counts) {
		side := func(kind, process string, c canary.Counts) {
			all = append(all, sideView{
				kind, process, fmt.Sprint(c.Requests), fmt.Sprint(c.Failed), fmt.Sprint(c.Refused),
				seconds(c.Mean().Seconds()), seconds(c.Longest.Seconds()),
			})
		}
		side(kind, "new "+p.To, next)
		side("", "old "+p.From, old)
	}
	if d := p.Canary.Difference; d.Old.Requests+d.New.Requests > 0 {
		add("all", d.Old, d.New)
	}
	for _, r := range p.Canary.Rows[:min(maxKinds, len(p.Canary.Rows))] {
		add(r.Verb+" "+r.Resource, r.Old, r.New)
	}
	return all
}

func processOf(role string, g supervisor.Generation) processView {
	return processView{role, g.Generation, string(g.State), string(g.State.Severity()), admin.Age(g.Since), memory(g.Usage)}
}

func (l *live) addCheck(c admin.Check) {
	v := checkView{Name: c.Name, Mood: "good", Text: strings.Join(c.Endpoints, ", ")}
	if c.Failure != "" {
		l.Failing++
		v.Mood, v.Text = moodIf(c.Required, "bad", "busy"), c.Failure
	}
	l.Checks = append(l.Checks, v)
}

// summarize says in a sentence how the chain stands.
func (l *live) summarize(s admin.Status) {
	var bad, busy []string
	for _, st := range s.Stages {
		switch st.State.Severity() {
		case supervisor.Bad:
			bad = append(bad, st.Stage+" is "+string(st.State)+admin.NextStart(st))
		case supervisor.Busy:
			busy = append(busy, st.Stage+" is "+string(st.State))
		}
		if p := st.Probation; p != nil && p.Canary != nil {
			busy = append(busy, st.Stage+": "+admin.State(st))
		} else if p != nil {
			busy = append(busy, fmt.Sprintf("%s is on probation for %s", st.Stage, max(0, time.Until(p.Until)).Round(time.Second)))
		}
	}
	if len(s.Faults) > 0 {
		l.Mood, l.Summary = "bad", s.Faults[0].String()
		for _, f := range s.Faults[1:] {
			l.Remarks = append(l.Remarks, f.String())
		}
		return
	}
	switch {
	case len(bad) > 0:
		l.Mood, l.Summary = "bad", strings.Join(slices.Concat(bad, busy), "; ")
	case !s.Host.Ready:
		l.Mood, l.Summary = "busy", "the server is starting"
	case len(busy) > 0:
		l.Mood, l.Summary = "busy", strings.Join(busy, "; ")
	default:
		l.Mood, l.Summary = "good", "all stages serve"
	}
	if l.Failing > 0 && l.Mood != "bad" {
		l.Mood = "busy"
		if l.Summary += fmt.Sprintf("; %d health checks fail", l.Failing); l.Failing == 1 {
			l.Summary = strings.TrimSuffix(l.Summary, "checks fail") + "check fails"
		}
	}
}

func moodIf(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func fromHost(t traffic.Stage) float64 {
	for _, h := range t.From {
		if h.From == "" {
			return h.PerSecond
		}
	}
	return 0
}

// flowOf draws a way the wider the more requests take it: by one step for ten times as many.
func flowOf(perSecond float64) flow {
	return flow{rate(perSecond), math.Round(10*min(1+2.2*math.Log10(1+perSecond), 10)) / 10}
}

func rate(perSecond float64) string { return admin.Rate(perSecond) + "/s" }

func seconds(s float64) string {
	switch {
	case s == 0:
		return "–"
	case s < 0.001:
		return fmt.Sprintf("%.2fms", 1000*s)
	case s < 1:
		return fmt.Sprintf("%.3gms", 1000*s)
	}
	return fmt.Sprintf("%.3gs", s)
}

func memory(u *supervisor.Usage) string {
	if u == nil {
		return "–"
	}
	return fmt.Sprintf("%d MiB", u.MemoryBytes>>20)
}

func cpu(u *supervisor.Usage) string {
	if u == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f%%", 100*u.CPUs)
}

func process(s supervisor.Status) string {
	if !admin.HasProcess(s) {
		return "none"
	}
	return fmt.Sprintf("%s, pid %d", s.Generation, s.PID)
}

func isolated(s supervisor.Status) string {
	switch {
	case s.Attached:
		return "off (attached)"
	case !admin.HasProcess(s):
		return "–"
	}
	return isolation.Summary(s.Isolation)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
