package supervisor

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// absent makes stage b one that is not required, and whose binary is a file that is not
// there yet.
func absent(binary string, last ...*stagev1.Claim) func(*options) {
	return func(o *options) {
		b := &o.Chain[1]
		b.Required, b.Binary, b.LastClaims = false, binary, last
	}
}

// install puts the test binary where a stage's is looked for.
func install(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestServerIsReadyWithoutAStageThatIsNotRequired starts without stage b. Requests for
// what it might own get 503, never 404.
func TestServerIsReadyWithoutAStageThatIsNotRequired(t *testing.T) {
	t.Parallel()
	claim := &stagev1.Claim{Path: "/b", Match: stagev1.Claim_EXACT}
	for name, tc := range map[string]struct {
		last []*stagev1.Claim
		want map[string]int
	}{
		"claims of the last run": {[]*stagev1.Claim{claim}, map[string]int{"/a": 200, "/b": 503, "/c": 200, "/none": 404}},
		"claims not known":       {nil, map[string]int{"/a": 200, "/b": 503, "/c": 503, "/none": 503}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), "catena-stage-b")
			f := ready(t, absent(binary, tc.last...))
			for path, want := range tc.want {
				if status, body := f.ask("GET", path, ""); status != want {
					t.Errorf("%s: %d %s, want %d", path, status, body, want)
				}
			}
			checks := f.Checks()
			i := slices.IndexFunc(checks, func(c Check) bool { return strings.HasPrefix(c.Name, "b/") })
			if i < 0 || checks[i].Required || checks[i].Run(t.Context()) == nil {
				t.Errorf("stage b is not shown: %+v", checks)
			}
			if st := f.Status()[1]; st.State != "down" || st.Required || !strings.Contains(st.Failure, binary) {
				t.Errorf("status %+v", st)
			}
			install(t, binary)
			eventually(t, "b serves, and a knows of it", func() bool {
				_, body := f.ask("GET", "/a", "")
				status, _ := f.ask("GET", "/b", "")
				return status == http.StatusOK && strings.HasSuffix(body, "[b[/b] c[/c]]")
			})
			for path, want := range map[string]int{"/c": 200, "/none": 404} {
				if status, body := f.ask("GET", path, ""); status != want {
					t.Errorf("with b, %s: %d %s, want %d", path, status, body, want)
				}
			}
			f.settled(t)
		})
	}
}

// TestChangeOfAChainWithAnAbsentStage changes what stands around a stage that is not
// there, and the stage itself.
func TestChangeOfAChainWithAnAbsentStage(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "catena-stage-b")
	f := ready(t, absent(binary))
	specs := f.Specs()
	if got, err := f.Apply(t.Context(), []Spec{specs[0], specs[2], specs[1]}); err != nil || !got.Reordered || !slices.Equal(got.Swapped, []string{"a", "c"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if status, body := f.ask("GET", "/c", ""); status != http.StatusOK {
		t.Errorf("c upstream of b: %d %s", status, body)
	}
	eventually(t, "a swap of a stage that is not there says so", func() bool {
		_, err := f.Swap(t.Context(), "b", SwapOptions{})
		if errors.Is(err, ErrBusy) {
			return false // it is just being tried again
		}
		if err == nil || !strings.Contains(err.Error(), binary) {
			t.Errorf("got %v", err)
		}
		return true
	})
	specs = f.Specs()
	specs[2].Binary = specs[0].Binary
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if status, body := f.ask("GET", "/b", ""); status != http.StatusOK {
		t.Errorf("b: %d %s", status, body)
	}
	f.settled(t)
}

// TestAbsentStageThatIsChanged is tried as the latest change wants it, though that does not
// bring it up by itself.
func TestAbsentStageThatIsChanged(t *testing.T) {
	t.Parallel()
	f := ready(t, absent(filepath.Join(t.TempDir(), "before")))
	after := filepath.Join(t.TempDir(), "after")
	specs := f.Specs()
	specs[1].Binary = after
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	install(t, after)
	eventually(t, "b serves", func() bool {
		status, _ := f.ask("GET", "/b", "")
		return status == http.StatusOK
	})
	f.settled(t)
}

// TestRequiredStageThatIsMissingEndsTheStart is the other policy.
func TestRequiredStageThatIsMissingEndsTheStart(t *testing.T) {
	t.Parallel()
	_, err := start(t, func(o *options) { o.Chain[1].Binary = "/nonexistent" })
	if err == nil || !strings.Contains(err.Error(), `stage "b"`) {
		t.Errorf("got %v", err)
	}
}

// TestStageThatNeverCameUpIsGone when it has left the chain: what is kept for it, such as its socket, is given back once it is tried no more.
func TestStageThatNeverCameUpIsGone(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	f := ready(t, func(o *options) {
		absent(filepath.Join(t.TempDir(), "catena-stage-b"))(o)
		use := o.HostSocket
		o.HostSocket = func(stage string) (string, func(), error) {
			path, done, err := use(stage)
			if stage == "b" {
				done = func() { gone.Store(true) }
			}
			return path, done, err
		}
	})
	if gone.Load() {
		t.Error("it is gone, and still tried")
	}
	specs := f.Specs()
	if _, err := f.Apply(t.Context(), []Spec{specs[0], specs[2]}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", gone.Load)
}
