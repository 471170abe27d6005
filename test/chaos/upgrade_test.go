package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var follow = flag.Bool("chaos.follow", false, "kube-controller-manager and kube-scheduler follow core to its release in TestRandomMoves")

// older is the release from which core goes to that of go.mod.
const older = "1.36"

// The releases as which core serves.
type release string

const (
	old      release = "1.36"
	emulated release = "1.37 as 1.36"
	final    release = "1.37"
)

// move takes core from one release to another.
type move struct {
	kind     string
	from, to release
	args     []string // of the command catena
}

// moves are all moves.
func moves() ([]move, error) {
	before, err := cluster.Stage("core", older)
	if err != nil {
		return nil, err
	}
	after, err := cluster.Stage("core", "")
	return []move{
		{"emulate", old, emulated, []string{"swap", "core", "--binary", after, "--emulate"}},
		{"back", emulated, old, []string{"swap", "core", "--binary", before}},
		{"finalize", emulated, final, []string{"upgrade", "finalize", "core"}},
		{"final, back", final, old, []string{"swap", "core", "--binary", before}},
	}, err
}

// command returns the arguments of a move. On the way back from 1.37 they name the resources that controllers of 1.37 have used: those
// of 1.36, which take over then, do not need them. Anything else that is in the way is an error.
func (m move) command(ctx context.Context, s *site) ([]string, error) {
	if m.from != final {
		return m.args, nil
	}
	var plan struct {
		Findings []struct {
			Topic, Name, Detail string
			Blocks              bool
		}
	}
	out, failed := s.Command(ctx, "upgrade", "plan", "core", "--binary", m.args[3], "-o", "json") // with exit code 2 if something is in the way
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		return nil, errors.Join(err, failed)
	}
	args := slices.Clone(m.args)
	for _, f := range plan.Findings {
		switch {
		case f.Blocks && f.Topic == "removed":
			args = append(args, "--allow", f.Name)
		case f.Blocks:
			return nil, fmt.Errorf("plan of the way back: %s %s: %s", f.Topic, f.Name, f.Detail)
		}
	}
	return args, nil
}

// course is what becomes of a move.
type course struct {
	kind  string
	class class
	do    func(ctx context.Context, s *site, m move) error
	// possible reports whether a move can have this course; nil means always.
	possible func(m move) bool
}

func courses() []course {
	swaps := func(m move) bool { return m.args[0] == "swap" }
	return []course{
		{"", planned, made, nil},
		{", new killed", crashInSwap, newKilled, nil},
		{", old killed", crashInSwap, oldKilled, nil},
		{", rolled back", crashInSwap, rolledBack, swaps},
		{", canary", planned, stepByStep, swaps},
		{", canary killed", crashInSwap, canaryKilled, swaps},
	}
}

// made is an undisturbed move.
func made(ctx context.Context, s *site, m move) error {
	args, err := m.command(ctx, s)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.Command(ctx, args...); err != nil {
		return err
	}
	s.swaps["core"] = time.Since(began)
	return s.serves(ctx, m.to)
}

// newKilled kills the new process, or one that only the plan needs, at some time before it serves or soon after. The old one goes
// on if the new one did not serve.
func newKilled(ctx context.Context, s *site, m move) error {
	return s.disturbed(ctx, m, func(before map[int]string, end <-chan struct{}) (int, error) {
		pid := s.awaitNew("core", before, end)
		if pid == 0 {
			return 0, fmt.Errorf("the move has ended without a new process")
		}
		return pid, nil
	})
}

// oldKilled kills the process that serves. It is started again, or the new one is there.
func oldKilled(ctx context.Context, s *site, m move) error {
	return s.disturbed(ctx, m, func(map[int]string, <-chan struct{}) (int, error) { return s.serving(ctx, "core") })
}

// disturbed kills a process at some time of a move. After that, core serves as before or as after it. The victim is chosen by the
// processes before the move, and its end.
func (s *site) disturbed(ctx context.Context, m move, victim func(before map[int]string, end <-chan struct{}) (int, error)) error {
	args, err := m.command(ctx, s)
	if err != nil {
		return err
	}
	before := s.processes("core")
	var failed error // of the move, which it may
	pause := time.Duration(s.random.Float64() * 1.25 * float64(s.swapTime("core")))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, failed = s.Command(ctx, args...)
	}()
	if err := sleep(ctx, pause); err != nil {
		return err
	}
	pid, err := victim(before, ended)
	if err != nil {
		<-ended
		return errors.Join(err, failed)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by now
	<-ended
	if err := s.awaitGone(ctx, "core", pid); err != nil {
		return err
	}
	return poll(ctx, func() error {
		err := s.serves(ctx, m.from)
		if err != nil && s.serves(ctx, m.to) == nil {
			err = nil
		}
		return err
	})
}

// rolledBack kills the new process while it is on probation: the old one takes its place.
func rolledBack(ctx context.Context, s *site, m move) error {
	args, err := m.command(ctx, s)
	if err != nil {
		return err
	}
	if _, err := s.Command(ctx, append(slices.Clone(args), "--rollback-on", "health", "--probation", "5m")...); err != nil {
		return err
	}
	if err := s.serves(ctx, m.to); err != nil {
		return err
	}
	pid, err := s.serving(ctx, "core")
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	return errors.Join(s.awaitOther(ctx, "core", pid), s.serves(ctx, m.from))
}

// stepByStep moves some of the clients first.
func stepByStep(ctx context.Context, s *site, m move) error {
	args, err := m.command(ctx, s)
	if err != nil {
		return err
	}
	if _, err := s.Command(ctx, append(slices.Clone(args), "--canary", "30%", "--then", "70%", "--for", "2s", "--rollback-on", "health")...); err != nil {
		return err
	}
	return errors.Join(s.awaitOne(ctx, "core"), s.serves(ctx, m.to))
}

// canaryKilled kills one of the two processes that serve during a canary: the other has all clients then.
func canaryKilled(ctx context.Context, s *site, m move) error {
	args, err := m.command(ctx, s)
	if err != nil {
		return err
	}
	killOld, want := s.random.IntN(2) == 0, m.from
	victim, err := s.serving(ctx, "core")
	if err == nil {
		_, err = s.Command(ctx, append(slices.Clone(args), "--canary", "50%", "--for", "5m", "--rollback-on", "health")...)
	}
	if killOld {
		want = m.to
	} else if err == nil {
		victim, err = s.serving(ctx, "core")
	}
	if err == nil {
		err = sleep(ctx, time.Duration(s.random.IntN(2000))*time.Millisecond)
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return err
	}
	return errors.Join(s.awaitGone(ctx, "core", victim), s.awaitOne(ctx, "core"), s.serves(ctx, want))
}

// release returns the release as which core serves.
func (s *site) release(ctx context.Context) (release, error) {
	status, err := s.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, st := range status.Stages {
		switch {
		case st.Stage != "core":
		case st.Emulates == older:
			return emulated, nil
		case strings.HasPrefix(st.Version, "v"+older+"."):
			return old, nil
		case st.Version != "":
			return final, nil
		}
	}
	return "", fmt.Errorf("core does not serve: %+v", status.Stages)
}

func (s *site) serves(ctx context.Context, want release) error {
	got, err := s.release(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("core serves as %s, want %s", got, want)
	}
	return err
}

// killed is the end of core outside of moves: it serves as before when it is back.
func killed(ctx context.Context, s *site, stage string) error {
	before, err := s.release(ctx)
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGKILL)(ctx, s, stage); err != nil {
		return err
	}
	return s.serves(ctx, before)
}

// event is a move with a course.
func (m move) event(c course) event {
	return event{kind: m.kind + c.kind, class: c.class, do: func(ctx context.Context, s *site, _ string) error { return c.do(ctx, s, m) }}
}

// Core goes from 1.36 to 1.37 and back in each move, and each course is taken once, with an aggregated server. make chaos-upgrade takes all.
func TestEveryMove(t *testing.T) {
	upgrade(t, &controlPlane{without: true}, func(s *site, all []move, happen func(event)) {
		reach := func(r release) {
			for now, err := s.release(t.Context()); now != r; now, err = s.release(t.Context()) {
				i := slices.IndexFunc(all, func(m move) bool { return m.from == now && (now != emulated || m.to == r) })
				if err != nil || i < 0 {
					t.Fatalf("from %s to %s: %v", now, r, err)
				}
				happen(all[i].event(courses()[0]))
			}
		}
		for _, kind := range []string{
			"emulate, new killed", "emulate, rolled back", "emulate, canary", "back, old killed", "finalize", "final, back, canary killed", "final, back",
		} {
			for _, m := range all {
				for _, c := range courses() {
					if m.kind+c.kind == kind && !t.Failed() {
						reach(m.from)
						happen(m.event(c))
					}
				}
			}
		}
	})
}

// Random moves for a given time, with controllers and scheduler too.
func TestRandomMoves(t *testing.T) {
	if *duration == 0 {
		t.Skip("run it with make chaos-upgrade, or with -chaos.for")
	}
	upgrade(t, &controlPlane{follow: *follow}, func(s *site, all []move, happen func(event)) {
		for end := time.Now().Add(*duration); time.Now().Before(end) && !t.Failed(); {
			now, err := s.release(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			possible := []event{{kind: "killed as " + string(now), class: crash, do: killed}}
			for _, m := range all {
				for _, c := range courses() {
					if m.from == now && (c.possible == nil || c.possible(m)) {
						possible = append(possible, m.event(c))
					}
				}
			}
			happen(possible[s.random.IntN(len(possible))])
			time.Sleep(time.Duration(s.random.IntN(1000)) * time.Millisecond)
		}
	})
}

// upgrade plays moves of core while the clients and programs of a cluster use it, and judges what the clients saw.
func upgrade(t *testing.T, plane *controlPlane, play func(s *site, all []move, happen func(event))) {
	all, err := moves()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, older)
	plane.site = s
	t.Cleanup(plane.stop)
	c, err := startClients(t.Context(), s.Config, s.Catena, plane.join)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	if err := plane.work(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.forget()
	r := &report{strict: true}
	began := time.Now()
	play(s, all, func(e event) {
		now, err := s.release(t.Context())
		if err == nil {
			err = errors.Join(plane.moving(t.Context(), now), plane.work(t.Context()))
		}
		happen(t, s, c, r, e, "core")
		if err == nil {
			now, err = s.release(t.Context())
		}
		if err == nil {
			err = errors.Join(plane.moved(t.Context(), now), plane.work(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	restoring := time.Now()
	if err := s.restore(t.Context()); err != nil {
		t.Error(err)
	}
	r.happened(event{kind: "restored"}, "", restoring, time.Now(), c)
	if err := plane.alive(); err != nil {
		t.Error(err)
	}
	if n := plane.rollouts.Load(); n < 3 && !plane.without {
		t.Errorf("the Deployment was rolled out %d times only", n)
	}
	c.stop()
	r.judge(t, c)
	if err := c.verify(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s%s; %d rollouts of a Deployment\n%d moves in %s", r, c, plane.rollouts.Load(), len(r.windows)-1, time.Since(began).Round(time.Second))
	if log, _ := os.ReadFile(s.Process().Log); strings.Contains(string(log), "panic: ") {
		t.Error("a process has panicked: see the log")
	}
}
