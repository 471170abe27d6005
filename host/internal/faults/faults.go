// Package faults says what is wrong with a host: a line for each cause, the gravest first, and none for what follows from another one.
package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// The kinds of faults, the gravest first.
const (
	StoreSilent     = "etcd-silent"
	StoreFull       = "etcd-full"
	StageDown       = "stage-down"
	NotReady        = "not-ready"
	StoreNearlyFull = "etcd-nearly-full"
	NoLimits        = "limits-not-in-force"
	ClaimsVoid      = "claims-void"
	StageRestarts   = "stage-restarts"
	ReleaseChanged  = "release-changed"
	CertificateEnds = "certificate-ends"
)

// Fault is one thing that is wrong.
type Fault struct {
	// Kind is etcd-silent, etcd-full, stage-down, not-ready, etcd-nearly-full, limits-not-in-force, claims-void,
	// stage-restarts, release-changed or certificate-ends.
	Kind string `json:"kind"`
	// Stage is empty if it is the whole host's.
	Stage string `json:"stage,omitempty"`
	// Text says what is wrong, for people, and where it is known what to do.
	Text string `json:"text"`
	// Since is zero if it is not known.
	Since time.Time `json:"since,omitzero"`
}

// String is the text, with the age.
func (f Fault) String() string {
	if f.Since.IsZero() {
		return f.Text
	}
	return fmt.Sprintf("%s (for %s)", f.Text, max(0, time.Since(f.Since)).Round(time.Second))
}

// Check is a failure of a health check without which the server is not ready.
type Check struct{ Name, Failure string }

const (
	// nearlyFull is the share of the quota of etcd, in percent, from which on objects have to be deleted, or the quota raised.
	nearlyFull = 85
	// manyStarts is how many starts in a row have to fail before a stage does not come up any more by itself.
	manyStarts = 8
	// manyRestarts is how many recent restarts of a stage may be chance. The alert CatenaStageRestarts has the same
	// figure.
	manyRestarts = 3
)

// Host keeps what is wrong with a host. Its methods may be called concurrently.
type Host struct {
	mu           sync.Mutex
	silent, full fault
	nearly       fault
	noLimits     fault
	void         map[string]fault           // by stage
	certificates map[string]pki.Certificate // by flag
}

// fault is one that is there since a time, or not if that is zero.
type fault struct {
	since time.Time
	text  string
}

// set makes a fault be there, or not, and reports whether that is new.
func (h *Host) set(f *fault, is bool, text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := !f.since.IsZero()
	switch {
	case is && !was:
		*f = fault{time.Now(), text}
	case is:
		f.text = text
	default:
		*f = fault{}
	}
	return is != was
}

// StoreSilent sets the fault that etcd does not respond, and why, or clears it if err is nil.
func (h *Host) StoreSilent(err error) {
	h.set(&h.silent, err != nil, fmt.Sprintf("etcd does not respond: %v", err))
}

// StoreFull sets whether etcd refuses writes since its quota is reached, and what helps.
func (h *Host) StoreFull(full bool, hint string) {
	h.set(&h.full, full, "etcd has reached its quota and refuses writes: "+hint)
}

// StoreSize says how large the file of etcd is, and how large it may be; 0 is unknown. It reports whether it is nearly
// full, and was not before.
func (h *Host) StoreSize(used, quota int64) bool {
	is := quota > 0 && used > quota/100*nearlyFull
	text := ""
	if is {
		text = fmt.Sprintf("the file of etcd has %d MiB, %d%% of the quota, at which it refuses writes: delete objects, and defragment an etcd of your own, or raise the quota", used>>20, used*100/quota)
	}
	return h.set(&h.nearly, is, text) && is
}

// NoLimits takes why limits of memory are not in force, or, if they are, "".
func (h *Host) NoLimits(why string) {
	h.set(&h.noLimits, why != "", "limits of memory are not in force, since processes cannot be measured: "+why)
}

// ClaimsVoid takes all claims that do not count. It reports whether they are others than before.
func (h *Host) ClaimsVoid(claims []grants.Void) (changed bool) {
	texts := map[string]string{}
	for _, c := range claims {
		if texts[c.Stage] == "" {
			texts[c.Stage] = "stage " + c.Stage + " claims what others have by name, and gets no request for that: "
		} else {
			texts[c.Stage] += ", "
		}
		texts[c.Stage] += c.String()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	void := map[string]fault{}
	for stage, text := range texts {
		if void[stage] = h.void[stage]; void[stage].text != text {
			changed, void[stage] = true, fault{time.Now(), text}
		}
	}
	changed = changed || len(void) != len(h.void)
	h.void = void
	return changed
}

// VoidClaims returns which claims of each stage do not count, and why.
func (h *Host) VoidClaims() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	texts := make(map[string]string, len(h.void))
	for stage, f := range h.void {
		texts[stage] = f.text
	}
	return texts
}

// Certificate takes a certificate that a flag names. It returns what is wrong with its end if that was not before, or "".
func (h *Host) Certificate(c pki.Certificate) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.certificates == nil {
		h.certificates = map[string]pki.Certificate{}
	}
	was := h.certificates[c.Flag]
	h.certificates[c.Flag] = c
	if !c.Soon || was.Soon {
		return ""
	}
	return ending(c)
}

// Cause is err, or, if etcd does not respond, that: what takes too long then would take as long with another timeout.
func (h *Host) Cause(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || h.silent.since.IsZero() {
		return err
	}
	return fmt.Errorf("pre-shutdown hooks have not ended, since %s", h.silent.text)
}

// List returns what is wrong, with these stages and failing checks.
func (h *Host) List(stages []supervisor.Status, failing []Check) []Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.silent.appendTo([]Fault{}, StoreSilent)
	list = h.full.appendTo(list, StoreFull)
	explained := !h.silent.since.IsZero()
	for _, st := range stages {
		if f, ok := ofStage(st); ok {
			list = append(list, f)
			explained = explained || st.Required
		}
	}
	if len(failing) > 0 && !explained {
		list = append(list, notReady(failing))
	}
	if h.full.since.IsZero() {
		list = h.nearly.appendTo(list, StoreNearlyFull)
	}
	list = h.noLimits.appendTo(list, NoLimits)
	for _, st := range stages {
		if f, ok := h.void[st.Stage]; ok {
			list = append(list, Fault{Kind: ClaimsVoid, Stage: st.Stage, Text: f.text, Since: f.since})
		}
	}
	for _, st := range stages {
		if _, down := ofStage(st); !down && !st.Attached && st.RecentRestarts > manyRestarts {
			text := fmt.Sprintf("stage %s was started again %d times in a quarter of an hour%s",
				st.Stage, st.RecentRestarts, cause(st))
			list = append(list, Fault{Kind: StageRestarts, Stage: st.Stage, Text: text})
		}
	}
	for _, st := range stages {
		if st.OtherRelease != "" {
			list = append(list, Fault{Kind: ReleaseChanged, Stage: st.Stage,
				Text: "stage " + st.Stage + " was " + st.OtherRelease, Since: st.Since})
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(h.certificates)) {
		if c := h.certificates[flag]; c.Soon {
			list = append(list, Fault{Kind: CertificateEnds, Text: ending(c)})
		}
	}
	return list
}

func (f fault) appendTo(list []Fault, kind string) []Fault {
	if f.since.IsZero() {
		return list
	}
	return append(list, Fault{Kind: kind, Text: f.text, Since: f.since})
}

// ofStage is the fault of a stage whose requests are refused, or that has not come up for so often that it will not by itself.
func ofStage(st supervisor.Status) (Fault, bool) {
	many := st.Failures >= manyStarts && !st.State.Serves()
	if st.State != supervisor.Down && !many {
		return Fault{}, false
	}
	text := fmt.Sprintf("stage %s is %s", st.Stage, st.State)
	if st.Failures > 1 {
		text += fmt.Sprintf(" after %d failed starts", st.Failures)
	}
	return Fault{Kind: StageDown, Stage: st.Stage, Text: text + cause(st), Since: st.Since}, true
}

// cause says why the latest process of a stage has failed.
func cause(st supervisor.Status) string {
	why, _, _ := strings.Cut(st.Failure, "\n") // what else there is, is the output of the process
	if why == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(why, "; the last of its output:")
}

func notReady(failing []Check) Fault {
	text := fmt.Sprintf("not ready: check %s fails: %s", failing[0].Name, failing[0].Failure)
	if n := len(failing) - 1; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return Fault{Kind: NotReady, Text: text}
}

func ending(c pki.Certificate) string {
	when := "has ended on"
	if time.Until(c.End) > 0 {
		when = "ends on"
	}
	return fmt.Sprintf("the certificate %s (%s) %s %s: connections are refused then; renew it",
		c.File, c.Flag, when, c.End.UTC().Format(time.DateOnly))
}
