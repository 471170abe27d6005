package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var decisions = map[Decision]string{
	Nothing: "nothing", TakeOver: "take over", Restart: "restart", Refuse: "refuse",
	RenewStandby: "renew standby", RollBack: "roll back", Accept: "accept",
}

var requestNames = map[Requests]string{Refused: "refused", Relayed: "relayed", Held: "held"}

// do does one step, as a transcript writes it: a method and its arguments. It returns what
// has come of it.
func do(s *Stage, step string) string {
	words := strings.Fields(step)
	arg := func(i int) string {
		if i < len(words) && words[i] != "-" {
			return words[i]
		}
		return ""
	}
	result := func(err error) string {
		if err != nil {
			return "refused"
		}
		return "ok"
	}
	id := arg(1)
	switch words[0] {
	case "launch":
		return result(s.Launch(id))
	case "configure":
		return result(s.Advance(id, Configuring))
	case "prepare":
		return result(s.Advance(id, Preparing))
	case "drain":
		return result(s.Advance(id, Draining))
	case "standby":
		return result(s.StandBy(id, arg(2)))
	case "serve":
		return result(s.Serve(id, arg(2)))
	case "dismiss":
		return s.Dismiss()
	case "retire":
		s.Retire(id)
	case "ended":
		return decisions[s.Ended(id, "")]
	case "succeed":
		return decisions[s.Successor()]
	case "expire":
		return fmt.Sprint(s.HoldExpired(id))
	case "probe":
		s.Probe(id)
	case "accept":
		s.EndProbation()
	case "revert":
		return fmt.Sprint(s.Revert())
	case "remove":
		s.Remove()
	case "stop":
		return fmt.Sprint(s.Stop())
	case "forget":
		s.Forget(id)
	}
	return "ok"
}

// up are the steps by which a generation comes to the point at which it could serve.
func up(id string) []string { return []string{"launch " + id, "configure " + id, "prepare " + id} }

// A transcript of each life that a stage can have.
func TestStageTranscripts(t *testing.T) {
	t.Parallel()
	first := append(up("a"), "serve a -")
	second := append(slices.Clone(first), up("b")...)
	for _, tc := range []struct {
		name   string
		before []string // must all be accepted
		// steps are "step → result".
		steps []string
		// want is "current requests".
		want string
	}{
		{"no step is skipped", nil, []string{"serve a - → refused", "launch a → ok", "serve a - → refused", "prepare a → refused", "drain a → refused"}, "- refused"},
		{"a process that does not come up", []string{"launch a"}, []string{"ended a → nothing", "configure a → refused", "serve a - → refused"}, "- refused"},
		{"an end is an end", first, []string{"ended a → restart", "ended a → nothing", "drain a → refused", "serve a a → refused"}, "a held"},
		{"restart", first, []string{"ended a → restart", "launch b → ok", "configure b → ok", "prepare b → ok", "serve b a → ok"}, "b relayed"},
		{"hold timeout", first, []string{"expire a → false", "ended a → restart", "expire a → true", "expire a → false"}, "a refused"},
		{"back after the hold timeout", second, []string{"ended a → restart", "expire a → true", "serve b a → ok"}, "b relayed"},
		{"swap", second, []string{"serve b a → ok", "retire a → ok", "drain a → ok", "ended a → nothing"}, "b relayed"},
		{"swap of what has died", second, []string{"ended a → restart", "serve b a → ok", "expire a → false"}, "b relayed"},
		{"a restart that a swap overtakes", append(slices.Clone(second), up("c")...),
			[]string{"ended a → restart", "serve b a → ok", "serve c a → refused", "drain c → ok"}, "b relayed"},
		{"takeover", second, []string{"standby b a → ok", "ended a → take over", "serve b a → ok"}, "b relayed"},
		{"a standby that cannot take over", second, []string{"standby b a → ok", "ended a → take over", "dismiss → b", "succeed → restart"}, "a held"},
		{"a standby that ends", second, []string{"standby b a → ok", "ended b → renew standby", "ended a → restart"}, "a held"},
		{"one standby", append(slices.Clone(second), up("c")...), []string{"standby b a → ok", "standby c a → refused"}, "a relayed"},
		{"a standby for what has ended", second, []string{"ended a → restart", "standby b a → refused"}, "a held"},
		{"a standby that is dismissed", second, []string{"standby b a → ok", "dismiss → b", "ended b → nothing", "dismiss → "}, "a relayed"},
		{"probation, crash", second, []string{"serve b a → ok", "probe a → ok", "ended b → roll back", "revert → true"}, "a relayed"},
		{"probation, crash of the old one", second, []string{"serve b a → ok", "probe a → ok", "ended a → accept", "revert → false", "accept → ok", "ended b → restart"}, "b held"},
		{"probation, both crash", second, []string{"serve b a → ok", "probe a → ok", "ended a → accept", "ended b → roll back", "revert → false", "accept → ok", "succeed → restart"}, "b held"},
		{"probation, accepted", second, []string{"serve b a → ok", "probe a → ok", "accept → ok", "retire a → ok", "ended a → nothing"}, "b relayed"},
		{"probation, old standby", append(slices.Clone(second), append(up("c"), "standby b a", "serve c a")...),
			[]string{"probe a → ok", "ended c → roll back", "revert → true", "ended a → take over"}, "a relayed"},
		{"removed", first, []string{"remove → ok", "launch b → refused", "retire a → ok", "ended a → nothing"}, "a relayed"},
		{"removed on probation", first, []string{"remove → ok", "probe a → ok", "revert → true", "ended a → restart"}, "a held"},
		{"removed on probation, crash", first, []string{"remove → ok", "probe a → ok", "ended a → accept", "revert → false"}, "a relayed"},
		{"added on probation", first, []string{"probe - → ok", "revert → true", "launch b → refused", "ended a → nothing"}, "a relayed"},
		{"stop", first, []string{"stop → false", "launch b → refused", "ended a → refuse"}, "a refused"},
		{"stop while requests wait", second, []string{"ended a → restart", "stop → true", "serve b a → refused"}, "a refused"},
		{"stop of a healthy stage", first, []string{"stop → false", "drain a → ok", "retire a → ok", "ended a → nothing"}, "a relayed"},
		{"stop does not take over", second, []string{"standby b a → ok", "stop → false", "ended a → refuse"}, "a refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewStage(time.Now, nil)
			for _, step := range tc.before {
				if got := do(s, step); got != "ok" {
					t.Fatalf("%s → %s", step, got)
				}
			}
			for _, line := range tc.steps {
				step, want, _ := strings.Cut(line, " → ")
				if got := do(s, step); got != want {
					t.Errorf("%s → %s, want %s", step, got, want)
				}
			}
			current := s.Current()
			if current == "" {
				current = "-"
			}
			if got := current + " " + requestNames[s.Requests()]; got != tc.want {
				t.Errorf("in the end %s, want %s", got, tc.want)
			}
		})
	}
}

// A refused step has changed nothing, and each transition is reported, in order.
func TestTransitionsAreReported(t *testing.T) {
	t.Parallel()
	var got []string
	s := NewStage(time.Now, func(id string, tr Transition) { got = append(got, fmt.Sprintf("%s %s→%s", id, tr.From, tr.To)) })
	for _, step := range append(up("a"), "serve a -", "launch a", "configure a", "ended a") {
		do(s, step)
	}
	want := []string{"a starting→configuring", "a configuring→preparing", "a preparing→serving", "a serving→failed", "a failed→backing off"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if s.State("unknown") != Stopped || s.Last("a").From != Failed {
		t.Errorf("states %s, %+v", s.State("unknown"), s.Last("a"))
	}
}

// model is a plain, slow account of what a Stage does: everything that has happened, from
// which each question is answered anew.
type model struct {
	// log has, for each generation, what has happened to it, in order.
	log                map[string][]string
	current            string
	standby, standbyOf string
	requests           string
	onProbation        bool
	predecessor        string
	removed, stopping  bool
}

func (m *model) has(id, what string) bool { return slices.Contains(m.log[id], what) }

func (m *model) ended(id string) bool { return m.log[id] == nil || m.has(id, "ended") }

func (m *model) serves(id string) bool {
	return m.has(id, "serve") && !m.has(id, "drain") && !m.ended(id)
}

// phase is the latest step of a generation's way up or down, without what is only wanted.
func (m *model) phase(id string) string {
	all := slices.DeleteFunc(slices.Clone(m.log[id]), func(s string) bool { return s == "retire" })
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func (m *model) add(id, what string) string {
	m.log[id] = append(m.log[id], what)
	return "ok"
}

func (m *model) retire(id string) {
	if m.log[id] != nil {
		m.add(id, "retire")
	}
}

func (m *model) succeed() string {
	switch {
	case !m.ended(m.current) || m.removed:
		return "nothing"
	case m.standby != "" && m.standbyOf == m.current:
		return "take over"
	case m.stopping:
		m.requests = "refused"
		return "refuse"
	}
	m.requests = "held"
	return "restart"
}

// do is what do does to a Stage.
func (m *model) do(step, id, other string) string {
	phase := m.phase(id)
	switch step {
	case "launch":
		if m.stopping || m.removed || m.log[id] != nil {
			return "refused"
		}
		return m.add(id, "launch")
	case "configure", "prepare":
		if before := map[string]string{"configure": "launch", "prepare": "configure"}[step]; phase != before {
			return "refused"
		}
		return m.add(id, step)
	case "drain":
		if phase != "prepare" && phase != "serve" && phase != "standby" {
			return "refused"
		}
		return m.add(id, step)
	case "standby":
		fine := phase == "prepare" && m.current == other && m.serves(other) && !m.has(other, "retire")
		if !fine || m.standby != "" || m.removed || m.stopping {
			return "refused"
		}
		m.standby, m.standbyOf = id, other
		return m.add(id, step)
	case "serve":
		if phase != "prepare" && phase != "standby" || m.stopping || m.removed || m.current != other {
			return "refused"
		}
		if m.standby == id {
			m.standby, m.standbyOf = "", ""
		}
		m.current, m.requests = id, "relayed"
		return m.add(id, step)
	case "dismiss":
		id := m.standby
		m.standby, m.standbyOf = "", ""
		m.retire(id)
		return id
	case "retire":
		m.retire(id)
	case "ended":
		if m.ended(id) {
			return "nothing"
		}
		wanted, stoodBy := m.has(id, "retire"), id == m.standby
		m.add(id, "ended")
		if stoodBy {
			m.standby, m.standbyOf = "", ""
		}
		switch {
		case wanted:
			return "nothing"
		case stoodBy:
			return "renew standby"
		case m.onProbation && (id == m.predecessor || m.removed):
			return "accept"
		case id != m.current:
			return "nothing"
		case m.stopping:
			m.requests = "refused"
			return "refuse"
		case m.onProbation:
			return "roll back"
		}
		return m.succeed()
	case "succeed":
		return m.succeed()
	case "expire":
		expired := m.current == id && m.requests == "held"
		if expired {
			m.requests = "refused"
		}
		return fmt.Sprint(expired)
	case "probe":
		m.onProbation, m.predecessor = true, id
	case "accept":
		m.onProbation, m.predecessor = false, ""
	case "revert":
		can := m.onProbation && !m.stopping
		if m.removed {
			can = can && m.serves(m.current)
		} else if m.predecessor != "" {
			can = can && m.serves(m.predecessor)
		}
		if !can {
			return "false"
		}
		switch {
		case m.removed:
			m.removed, m.requests = false, "relayed"
		case m.predecessor == "":
			m.retire(m.current)
			m.removed = true
		default:
			m.retire(m.current)
			m.current, m.requests = m.predecessor, "relayed"
		}
		m.onProbation, m.predecessor = false, ""
		return "true"
	case "remove":
		m.removed = true
	case "stop":
		m.stopping = true
		return m.do("expire", m.current, "")
	}
	return "ok"
}

// TestStageAgainstAModel has random things happen to a stage, crashes at any time among
// them, in the order in which they may come and in others. LIFECYCLE_TEST_SEED repeats a
// run.
func TestStageAgainstAModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("LIFECYCLE_TEST_SEED"), 10, 64); err == nil {
		seed = s
	}
	random := rand.New(rand.NewPCG(seed, 0))
	steps := []string{
		"launch", "configure", "prepare", "serve", "serve", "standby", "launch", "configure", "prepare", "serve",
		"drain", "dismiss", "retire", "ended", "ended", "succeed", "expire", "probe", "accept", "revert",
	}
	for run := range 3000 {
		s := NewStage(time.Now, nil)
		m := &model{log: map[string][]string{}, requests: "refused"}
		var transcript, fresh []string
		for i := range 60 {
			step := steps[random.IntN(len(steps))]
			if random.IntN(200) == 0 {
				step = []string{"remove", "stop"}[random.IntN(2)]
			}
			id, other := fmt.Sprint(random.IntN(1+i/6)), m.current
			if step == "probe" {
				// Only what has served can have been replaced, by what serves.
				if id == m.current || !m.serves(id) || !m.serves(m.current) || m.onProbation {
					continue
				}
			}
			if random.IntN(10) == 0 {
				other = fmt.Sprint(random.IntN(10))
			}
			if other == "" {
				other = "-"
			}
			if step == "launch" && random.IntN(2) == 0 { // a whole way up
				id = fmt.Sprint("g", i)
				for _, step := range []string{"launch", "configure"} {
					do(s, step+" "+id)
					m.do(step, id, "")
					transcript = append(transcript, step+" "+id)
				}
				fresh = append(fresh, id)
				step = "prepare"
			} else if len(fresh) > 0 && random.IntN(2) == 0 {
				id = fresh[random.IntN(len(fresh))]
			}
			line := strings.Join([]string{step, id, other}, " ")
			if other == "-" {
				other = ""
			}
			got, want := do(s, line), m.do(step, id, other)
			transcript = append(transcript, line+" → "+got)
			if got != want || s.Current() != m.current || requestNames[s.Requests()] != m.requests || s.Standby() != m.standby {
				t.Fatalf("LIFECYCLE_TEST_SEED=%d run %d, want %s; current %q %q, requests %s %s, standby %q %q:\n%s", seed, run, want,
					s.Current(), m.current, requestNames[s.Requests()], m.requests, s.Standby(), m.standby, strings.Join(transcript, "\n"))
			}
			check(t, s, transcript)
		}
	}
}

// check is what holds after each step, whatever has happened.
func check(t *testing.T, s *Stage, transcript []string) {
	t.Helper()
	complain := func(what string) { t.Fatalf("%s after\n%s", what, strings.Join(transcript, "\n")) }
	if id := s.Standby(); id != "" && s.State(id) != StandingBy && s.State(id) != Draining {
		complain("the standby is " + s.State(id).String())
	}
	if s.Standby() != "" && s.Standby() == s.Current() {
		complain("a generation stands by for itself")
	}
	if s.Requests() == Held && !s.State(s.Current()).Ended() {
		complain("requests wait for the end of a generation that has not ended")
	}
	for id := range s.generations {
		if s.Waits(id) && s.State(id) == Serving {
			complain("a generation that serves is waited for")
		}
	}
}
