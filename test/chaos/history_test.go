package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// history is what concurrent clients have asked of ConfigMaps, and what the responses were. It is checked for
// linearizability: there must be one order of all requests, each between its begin and its response, in which a single
// copy of the objects would have responded the same.
type history struct {
	client typedcorev1.ConfigMapInterface
	began  time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	unknown    int
}

const (
	// era is how long clients work on one object: the check of a long history of one object takes too long.
	era = 4 * time.Second
	// historians is how many clients make a history.
	historians = 4
)

// question is a request.
type question struct {
	verb, name, value string
	// expects is the version that an update replaces.
	expects uint64
}

// response is what a request has led to.
type response struct {
	outcome string // "" for success; else "not found", "exists", "conflict", "unknown"
	value   string
	version uint64
}

// stored is an object as it is stored.
type stored struct {
	exists  bool
	value   string
	version uint64 // 0: not known, because no response has had it
}

func newHistory(config *rest.Config) (*history, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &history{client: client.CoreV1().ConfigMaps(namespace), began: time.Now()}, nil
}

// historian returns a client.
func (h *history) historian(id int) func(context.Context, int) error {
	random := rand.New(rand.NewPCG(uint64(id), 0))
	var last response // what this client knows of the object
	return func(ctx context.Context, n int) error {
		q := question{name: fmt.Sprintf("h%d", time.Since(h.began)/era), value: fmt.Sprintf("%d-%d", id, n)}
		switch k := random.IntN(10); {
		case k < 4:
			q.verb = "get"
		case k < 6:
			q.verb = "patch"
		case k < 8 && last.version != 0:
			q.verb, q.expects = "update", last.version
		case k < 9:
			q.verb = "create"
		default:
			q.verb = "delete"
		}
		from := time.Now()
		r, err := h.ask(ctx, q)
		h.record(id, q, r, from)
		if r.outcome != "conflict" {
			last = r
		}
		return err
	}
}

// ask makes a request. An error means that its outcome is not known.
func (h *history) ask(ctx context.Context, q question) (response, error) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: q.name}, Data: map[string]string{"value": q.value}}
	var err error
	switch q.verb {
	case "get":
		o, err = h.client.Get(ctx, q.name, metav1.GetOptions{})
	case "create":
		o, err = h.client.Create(ctx, o, metav1.CreateOptions{})
	case "patch":
		patch, _ := json.Marshal(map[string]any{"data": o.Data})
		o, err = h.client.Patch(ctx, q.name, types.MergePatchType, patch, metav1.PatchOptions{})
	case "update":
		o.ResourceVersion = strconv.FormatUint(q.expects, 10)
		o, err = h.client.Update(ctx, o, metav1.UpdateOptions{})
	case "delete":
		err = h.client.Delete(ctx, q.name, metav1.DeleteOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return response{outcome: "not found"}, nil
	case apierrors.IsAlreadyExists(err):
		return response{outcome: "exists"}, nil
	case apierrors.IsConflict(err):
		return response{outcome: "conflict"}, nil
	case err != nil:
		return response{outcome: "unknown"}, err
	case q.verb == "delete":
		return response{}, nil
	}
	version, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return response{value: o.Data["value"], version: version}, err
}

// record adds a request to the history. One without a response may be executed at any time from now on, or never.
func (h *history) record(id int, q question, r response, from time.Time) {
	to := time.Since(h.began).Nanoseconds()
	if r.outcome == "unknown" {
		to = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.outcome == "unknown" {
		h.unknown++
		if q.verb == "get" {
			return
		}
	}
	h.operations = append(h.operations, porcupine.Operation{ClientId: id, Input: q, Output: r, Call: from.Sub(h.began).Nanoseconds(), Return: to})
}

// String sums up the history.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("a history of %d requests, %d of them without a response", len(h.operations), h.unknown)
}

// checkTimeout bounds the check of a history.
const checkTimeout = 5 * time.Minute

// check returns an error if the history is not linearizable. A picture of it is left then.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.operations) < 50 {
		return fmt.Errorf("the history has only %d requests", len(h.operations))
	}
	switch result, info := porcupine.CheckOperationsVerbose(model, h.operations, checkTimeout); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("the history could not be checked within %s", checkTimeout)
	default:
		path := filepath.Join(os.TempDir(), fmt.Sprintf("catena-history-%d.html", os.Getpid()))
		return fmt.Errorf("the history is not linearizable: see %s (%v)", path, porcupine.VisualizePath(model, info, path))
	}
}

// model is a single copy of the objects.
var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, o := range all {
			name := o.Input.(question).name
			byName[name] = append(byName[name], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return stored{} },
	Step: func(s, q, r any) (bool, any) {
		ok, next := s.(stored).step(q.(question), r.(response))
		return ok, next
	},
	DescribeOperation: func(q, r any) string { return fmt.Sprintf("%+v → %+v", q, r) },
}

// step returns what is stored after a request, and whether its response can be.
func (s stored) step(q question, r response) (bool, stored) {
	written := stored{true, q.value, r.version}
	same := s.version == 0 || s.version == q.expects
	switch r.outcome {
	case "not found":
		return !s.exists && q.verb != "create", s
	case "exists":
		return s.exists && q.verb == "create", s
	case "conflict":
		return q.verb == "patch" || q.verb == "update" && s.exists && (s.version == 0 || !same), s
	}
	unknown := r.outcome == "unknown"
	switch q.verb {
	case "get":
		return s.exists && s.value == r.value && (s.version == 0 || s.version == r.version), stored{true, r.value, r.version}
	case "create":
		if s.exists {
			return unknown, s
		}
		return true, written
	case "delete":
		return s.exists || unknown, stored{}
	case "update":
		if !s.exists || !same {
			return unknown, s
		}
	}
	if !s.exists {
		return unknown, s
	}
	return unknown || r.value == q.value && r.version > s.version, written
}

// The check finds what a store must not do.
func TestModel(t *testing.T) {
	t.Parallel()
	type op struct {
		q        question
		r        response
		from, to int64
	}
	create := op{question{verb: "create", value: "a"}, response{"", "a", 1}, 1, 2}
	for name, c := range map[string]struct {
		rest []op
		ok   bool
	}{
		"read what was written":             {[]op{{question{verb: "get"}, response{"", "a", 1}, 3, 4}}, true},
		"not found after a create":          {[]op{{question{verb: "get"}, response{outcome: "not found"}, 3, 4}}, false},
		"not found while it is created":     {[]op{{question{verb: "get"}, response{outcome: "not found"}, 1, 4}}, true},
		"another value":                     {[]op{{question{verb: "get"}, response{"", "b", 1}, 3, 4}}, false},
		"created twice":                     {[]op{{question{verb: "create", value: "b"}, response{"", "b", 2}, 3, 4}}, false},
		"update of the version":             {[]op{{question{verb: "update", value: "b", expects: 1}, response{"", "b", 2}, 3, 4}}, true},
		"update of another version":         {[]op{{question{verb: "update", value: "b", expects: 7}, response{"", "b", 2}, 3, 4}}, false},
		"conflict without a reason":         {[]op{{question{verb: "update", value: "b", expects: 1}, response{outcome: "conflict"}, 3, 4}}, false},
		"a version that does not grow":      {[]op{{question{verb: "patch", value: "b"}, response{"", "b", 1}, 3, 4}}, false},
		"a lost update":                     {[]op{{question{verb: "patch", value: "b"}, response{"", "b", 2}, 3, 4}, {question{verb: "get"}, response{"", "a", 1}, 5, 6}}, false},
		"a write without response, done":    {[]op{{question{verb: "patch", value: "b"}, response{outcome: "unknown"}, 3, math.MaxInt64}, {question{verb: "get"}, response{"", "b", 5}, 5, 6}}, true},
		"a write without response, not yet": {[]op{{question{verb: "patch", value: "b"}, response{outcome: "unknown"}, 3, math.MaxInt64}, {question{verb: "get"}, response{"", "a", 1}, 5, 6}}, true},
		"a write that is undone": {[]op{
			{question{verb: "patch", value: "b"}, response{outcome: "unknown"}, 3, math.MaxInt64},
			{question{verb: "get"}, response{"", "b", 5}, 5, 6}, {question{verb: "get"}, response{"", "a", 1}, 7, 8},
		}, false},
		"deleted and there": {[]op{{question{verb: "delete"}, response{}, 3, 4}, {question{verb: "get"}, response{"", "a", 1}, 5, 6}}, false},
	} {
		var operations []porcupine.Operation
		for i, o := range append([]op{create}, c.rest...) {
			operations = append(operations, porcupine.Operation{ClientId: i, Input: o.q, Output: o.r, Call: o.from, Return: o.to})
		}
		if ok := porcupine.CheckOperations(model, operations); ok != c.ok {
			t.Errorf("%s: linearizable is %t", name, ok)
		}
	}
}
