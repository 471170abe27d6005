package klogr

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	"k8s.io/klog/v2"
)

// There is one logger for klog in a process, so these tests run one after the other.
func TestInstall(t *testing.T) {
	var out bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})
	if err := Install(log, "3", ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Install(hclog.NewNullLogger(), "0", "") })

	ctx := klog.NewContext(t.Context(), klog.Background().WithName("sub").WithValues("request", 7))
	for want, write := range map[string]func(){
		"[INFO]  plain 1\n":    func() { klog.Infof("plain %d", 1) },
		"[WARN]  careful\n":    func() { klog.Warning("careful") },
		"[ERROR] bad: [x] y\n": func() { klog.Errorf("bad: [x] y") },
		"[WARN]  bad request: detail=\"[ERROR] all is lost\"\n": func() { klog.Warning("bad request\n[ERROR] all is lost") },
		"[INFO]  bad request: detail=\"\\x1b[2J\"\n":            func() { klog.InfoS("bad request\x1b[2J") },
		"[ERROR] lists: a=b error=x\n  detail=\n  | 1\n  | 2\n": func() { klog.ErrorS(errors.New("x"), "lists\n1\n2", "a", "b") },
		"[INFO]  verbose\n":               func() { klog.V(3).Info("verbose") },
		"":                                func() { klog.V(4).Info("too verbose") },
		"[INFO]  keys: pod=ns/name n=1\n": func() { klog.InfoS("keys", "pod", klog.KRef("ns", "name"), "n", 1) },
		"[ERROR] failed: a=b error=\"no luck\"\n":           func() { klog.ErrorS(errors.New("no luck"), "failed", "a", "b") },
		"[INFO]  sub: from context: request=7\n":            func() { klog.FromContext(ctx).V(3).Info("from context") },
		"[INFO]  odd: 1=2 EXTRA_VALUE_AT_END=three\n":       func() { klog.Background().Info("odd", 1, 2, "three") },
		"[INFO]  nil: it=\"<panic: runtime error: invalid ": func() { klog.Background().Info("nil", "it", (*stringer)(nil)) },
	} {
		out.Reset()
		write()
		if got := out.String(); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("log is %q, want %q", got, want)
		}
	}
	if klog.FromContext(ctx).V(4).Enabled() {
		t.Error("a logger out of a context is enabled beyond --v")
	}
}

// gRPC logs with klog in the goroutines of a stage before the stage is configured.
func TestInstallWhileKlogIsInUse(t *testing.T) {
	logging, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			klog.V(2).Info("in use")
			klog.InfoSDepth(0, "in use", "i", i)
			if i == 10 {
				close(logging)
			}
		}
	}()
	<-logging
	if err := Install(hclog.NewNullLogger(), "2", ""); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestInstallRefusesBadFlags(t *testing.T) {
	if err := Install(hclog.NewNullLogger(), "much", ""); err == nil || !strings.Contains(err.Error(), "log flag v") {
		t.Errorf("error is %v, want one that names the flag v", err)
	}
}

func TestNewKeepsOrdinaryValues(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logr.New(New(hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true, JSONFormat: true})))
	log.Info("m", "n", 1, "list", []string{"a"}, "ref", klog.KRef("ns", "name"))
	for _, want := range []string{`"n":1`, `"list":["a"]`, `"ref":"ns/name"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log is %s, want it to contain %s", out.String(), want)
		}
	}
}

type stringer struct{ s string }

func (s *stringer) String() string { return s.s }
