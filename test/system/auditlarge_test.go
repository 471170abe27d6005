package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The audit events of large lists and of a collection that is deleted are whole, and no response depends on them, as with
// kube-apiserver: also when there are many at once.
func TestLargeAuditEvents(t *testing.T) {
	t.Parallel()
	const (
		objects = 24
		at      = "/api/v1/namespaces/default/configmaps"
		many    = 14
	)
	logs := map[string]string{}
	b := startBeside(t, func(name, dir string) map[string]string {
		logs[name] = filepath.Join(dir, "audit.log")
		return map[string]string{
			"audit-policy-file": write(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: None, users: [\"system:apiserver\"]}, {level: RequestResponse}]\n"),
			"audit-log-path":    logs[name],
			"audit-log-maxsize": "1000", "request-timeout": "10m",
		}
	})
	data := strings.Repeat("é", 450_000)
	for name, k := range b.both() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range objects {
				if code := status(t, k, http.MethodPost, at, fmt.Sprintf(`{"metadata": {"name": "large-%d", "labels": {"large": "yes"}}, "data": {"a": %q}}`, i, data), ""); code != http.StatusCreated {
					t.Fatalf("create: %d", code)
				}
			}
			list, remove := auditID("list"), auditID("delete")
			want := map[string]int{list: objects, remove: objects}
			if code := status(t, k, http.MethodGet, at+"?labelSelector=large", "", list); code != http.StatusOK {
				t.Errorf("list: %d", code)
			}
			var all sync.WaitGroup
			for i := range many {
				id := auditID(fmt.Sprint("list", i))
				want[id] = objects / 2
				all.Go(func() {
					if code := status(t, k, http.MethodGet, at+fmt.Sprintf("?labelSelector=large&limit=%d", objects/2), "", id); code != http.StatusOK {
						t.Errorf("list %d of %d at once: %d", i, many, code)
					}
				})
			}
			all.Wait()
			if code := status(t, k, http.MethodDelete, at+"?labelSelector=large", "", remove); code != http.StatusOK {
				t.Errorf("delete of a collection: %d", code)
			}
			got, log := map[string]int{}, &auditLines{path: logs[name], items: map[string]int{}}
			eventually(t, "the events of all requests", func() bool {
				log.more(t)
				for id := range want {
					if n, ok := log.items[id]; ok {
						got[id] = n
					}
				}
				return len(got) == len(want)
			}, func() string { return fmt.Sprint(got) })
			if !maps.Equal(got, want) {
				t.Errorf("items of the events: %v, want %v", got, want)
			}
		})
	}
}

// auditLines are the lines of a log, read as they come.
type auditLines struct {
	path string
	read int64
	// items is how many of the objects the events have, by request.
	items map[string]int
}

// more reads what has come.
func (l *auditLines) more(t *testing.T) {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, l.read, math.MaxInt64-l.read))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			return
		}
		l.read += int64(len(line))
		_, rest, _ := bytes.Cut(line, []byte(`"auditID":"`))
		id, _, _ := bytes.Cut(rest, []byte(`"`))
		l.items[string(id)] = bytes.Count(line, []byte(`"name":"large-`))
	}
}

// status makes a request, reads the response, and returns its status.
func status(t *testing.T, k *cluster.KubeAPIServer, method, path, body, id string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, k.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if id != "" {
		req.Header.Set("Audit-ID", id)
	}
	resp, err := httpClient(t, k.Config(cluster.Admin)).Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !json.Valid(text) {
		t.Errorf("%s %s: the response breaks off: %v", method, path, err)
	}
	return resp.StatusCode
}
