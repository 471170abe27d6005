package supervisor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/callers"
)

// TestOperations has each operation meet each other, a probation and a canary, which the rows are; a column is what is then asked for, which goes on, waits or is
// refused.
func TestOperations(t *testing.T) {
	t.Parallel()
	const goesOn, waits, refused = 'g', 'w', 'r'
	columns := []Operation{swapStage, swapOther, applyChain, reconcileChain, swapForLimit, PlanUpgrade, StartShadow, UpgradeHost}
	if len(columns) != len(operations) {
		t.Fatalf("%d operations are tried of %d", len(columns), len(operations))
	}
	for _, row := range []struct{ name, words, want string }{
		{"swapStage", `a swap of stage "b" is under way`, "rrwwrgrr"},
		{"swapOther", `a swap of stage "b" is under way`, "rrwwrrrr"},
		{"applyChain", `a change of the chain is under way`, "rrwwrgrr"},
		{"reconcileChain", `a change of the chain is under way`, "rrwwrgrr"},
		{"swapForLimit", `a swap of stage "b" is under way`, "rrwwrgrr"},
		{"PlanUpgrade", `a plan of an upgrade of stage "b" is under way`, "grgggrrr"},
		{"StartShadow", `the start of a shadow of stage "b" is under way`, "rrwwrrrr"},
		{"UpgradeHost", `an upgrade of the host is under way`, "rrwwrrrr"},
		{"probation", `a swap of stage "b" is on probation, which "catena swap b --promote" or "--rollback" ends`, "ggggrgrr"},
		{"unasked probation", "", "gggggggg"},
		{"canary", `a canary of stage "b" is under way, which "catena swap b --promote" or "--rollback" ends`, "rrgrrrrr"},
	} {
		for i, asked := range columns {
			t.Run(fmt.Sprintf("%s,%d", row.name, i), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s, err := New(callers.New(nil), Options{Log: hclog.NewNullLogger()})
					if err != nil {
						t.Fatal(err)
					}
					end := func() { s.locked.probation.Store(nil) }
					begin(t, s, row.name, &end)
					ended := make(chan error, 1)
					go func() {
						end, err := s.Begin(t.Context(), asked, stageOf(asked, "a"))
						if err == nil {
							end()
						}
						ended <- err
					}()
					synctest.Wait()
					got := rune(waits)
					select {
					case err = <-ended:
						got = goesOn
						if err != nil {
							got = refused
						}
					default:
					}
					if want := rune(row.want[i]); got != want {
						t.Errorf("%c, want %c: %v", got, want, err)
					}
					end()
					switch {
					case got == refused:
						about := ""
						if stageOf(asked, "a") != "" {
							about = `stage "a": `
						}
						if want := about + row.words + ": try again when it is over"; err.Error() != want || !errors.Is(err, ErrBusy) {
							t.Errorf("%q, want %q", err, want)
						}
					case got == waits:
						if err := <-ended; err != nil {
							t.Errorf("after the other: %v", err)
						}
					}
					// Nothing is held any more, and Stop waits for nobody.
					for _, o := range columns[:len(columns)-1] {
						if end, err := s.Begin(t.Context(), o, ""); err != nil {
							t.Errorf("operation %d afterwards: %v", o, err)
						} else {
							end()
						}
					}
					if err := s.Stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// begin begins an operation, a probation or a canary of stage b.
func begin(t *testing.T, s *Supervisor, name string, end *func()) {
	t.Helper()
	p := &probation{moved: []moved{{stage: &stage{name: "b"}}}}
	switch name {
	case "unasked probation":
		s.locked.probation.Store(&probation{supervisor: s, unasked: true, over: make(chan struct{})})
		return
	case "canary":
		p.canary = &canaryRun{stage: "b"}
		fallthrough
	case "probation":
		s.locked.probation.Store(p)
		return
	}
	for o, known := range []string{"swapStage", "swapOther", "applyChain", "reconcileChain", "swapForLimit", "PlanUpgrade", "StartShadow", "UpgradeHost"} {
		if name != known {
			continue
		}
		var err error
		if *end, err = s.Begin(t.Context(), Operation(o), stageOf(Operation(o), "b")); err != nil {
			t.Fatal(err)
		}
	}
}

// stageOf is the stage that an operation is on; it is empty if that is the whole chain.
func stageOf(o Operation, name string) string {
	if o == applyChain || o == reconcileChain || o == UpgradeHost {
		return ""
	}
	return name
}

// TestHostUpgradeLasts until the supervisor stops, which does not wait for it.
func TestHostUpgradeLasts(t *testing.T) {
	t.Parallel()
	s, err := New(callers.New(nil), Options{Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(t.Context(), UpgradeHost, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(t.Context(), UpgradeHost, ""); !errors.Is(err, ErrBusy) {
		t.Errorf("another: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := s.Begin(t.Context(), applyChain, ""); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("after the end: %v", err)
	}
}
