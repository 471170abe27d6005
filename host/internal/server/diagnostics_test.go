package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/logring"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// In each format, the lines are kept as they are written, with level and source.
func TestLinesAreKept(t *testing.T) {
	t.Parallel()
	for _, format := range []string{config.TextLog, config.JSONLog, config.KlogLog, config.KlogJSONLog} {
		ring, written := logring.New(1<<16), &strings.Builder{}
		o := logOptions(format, &recorder{written, ring, "core"})
		log := hclog.New(&o).Named("core")
		log.Warn("first", "a", 1)
		log.Info("second", "b", "x\ny")
		lines, _, _ := ring.Reader().Next()
		if len(lines) != 2 || lines[0].Level != hclog.Warn || lines[1].Level != hclog.Info || lines[0].Source != "core" {
			t.Fatalf("%s: kept %+v", format, lines)
		}
		if got := string(lines[0].Text) + string(lines[1].Text); got != written.String() || strings.Contains(got, "core: core") {
			t.Errorf("%s: kept %q, written %q", format, got, written)
		}
	}
}

func newTestCommands() *commands {
	return &commands{logs: newLogs(config.Log{Level: "info", StageLevel: "warn", Format: config.TextLog}), stages: noStages()}
}

func TestLogsAreSelected(t *testing.T) {
	t.Parallel()
	c := newTestCommands()
	at := time.Unix(1000, 0)
	for i := range 10 {
		c.logs.recent.Add(logring.Line{At: at.Add(time.Duration(i) * time.Second), Level: hclog.Info + hclog.Level(i%2), Source: "host", Text: fmt.Appendf(nil, "%d\n", i)})
	}
	for want, req := range map[string]admin.LogRequest{
		"0 1 2 3 4 5 6 7 8 9": {Tail: -1},
		"8 9":                 {Tail: 2},
		"7 9":                 {Tail: 2, Level: "warn", Names: []string{"host"}},
		"6 7 8 9":             {Tail: -1, Since: at.Add(6 * time.Second)},
		"":                    {Tail: 0},
	} {
		var got strings.Builder
		err := c.Logs(t.Context(), req, func(chunk admin.LogChunk) error {
			_, err := io.WriteString(&got, chunk.Text)
			return err
		})
		if text := strings.Join(strings.Fields(got.String()), " "); err != nil || text != want {
			t.Errorf("%+v: got %q, %v, want %q", req, text, err, want)
		}
	}
}

// A follower that does not read is told how many lines it has lost, and nobody waits for it.
func TestFollowerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	c := newTestCommands()
	ctx, stop := context.WithCancel(t.Context())
	line := logring.Line{At: time.Now(), Level: hclog.Info, Source: "host", Text: []byte(strings.Repeat("x", 1<<10) + "\n")}
	c.logs.recent.Add(line)
	began, reading, read := make(chan struct{}), make(chan struct{}), make(chan admin.LogChunk)
	begin := sync.OnceFunc(func() { close(began) })
	ended := make(chan error, 1)
	go func() {
		ended <- c.Logs(ctx, admin.LogRequest{Tail: -1, Follow: true}, func(chunk admin.LogChunk) error {
			begin()
			<-reading
			read <- chunk
			return nil
		})
	}()
	<-began
	const lines = 3 * recentLogs >> 10
	for range lines - 1 {
		c.logs.recent.Add(line)
	}
	close(reading)
	var got, lost uint64
	for got+lost < lines {
		chunk := <-read
		got, lost = got+uint64(strings.Count(chunk.Text, "\n")), lost+chunk.Lost
	}
	if lost == 0 || got+lost != lines {
		t.Errorf("read %d lines and lost %d of %d", got, lost, lines)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestErrorsOfPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{status.Error(codes.Unimplemented, "x"), http.StatusNotImplemented, `stage "s" has no profiles and no other pages`},
		{status.Error(codes.NotFound, "x"), http.StatusNotFound, `stage "s" has no page "p"`},
		{fmt.Errorf("stage %q %w", "s", supervisor.ErrNotInChain), http.StatusNotFound, `stage "s" is not in the chain`},
		{fmt.Errorf("stage %q: %w", "s", supervisor.ErrNoProcess), http.StatusServiceUnavailable, `stage "s": it has no such process`},
		{errors.New("other"), http.StatusInternalServerError, "other"},
	} {
		if code, text := pageCode(c.err), pageProblem(c.err, "s", "p"); code != c.code || !strings.HasPrefix(text, c.want) {
			t.Errorf("%v: %d %q, want %d %q", c.err, code, text, c.code, c.want)
		}
	}
}

func TestEventsOfKubernetes(t *testing.T) {
	t.Parallel()
	for reason, e := range map[string]supervisor.Event{
		"StageFailed":     {Kind: supervisor.StateChanged, To: "failed", Reason: `stage "core": boom`},
		"StageRestarted":  {Kind: supervisor.Restarted},
		"StandbyTookOver": {Kind: supervisor.TookOver},
		"StageDown":       {Kind: supervisor.Refused},
		"StageSwapped":    {Kind: supervisor.SwapDone},
		"SwapFailed":      {Kind: supervisor.SwapFailed, Reason: "boom"},
		"SwapRolledBack":  {Kind: supervisor.SwapRolledBack},
		"SwapReverted":    {Kind: supervisor.SwapReverted},
		"StageAdded":      {Kind: supervisor.StageAdded},
		"StageRemoved":    {Kind: supervisor.StageRemoved},
		"LimitReached":    {Kind: supervisor.LimitReached, Limit: "memory"},
	} {
		e.Stage = "core"
		if got, ok := kubeEvent(e); !ok || got.Reason != reason || got.Message == "" || strings.Contains(got.Message, `stage "core"`) {
			t.Errorf("%s: got %+v", e.Kind, got)
		}
	}
	for _, e := range []supervisor.Event{{Kind: supervisor.StateChanged, To: "serving"}, {Kind: supervisor.SwapBegun}, {Kind: supervisor.Held}} {
		if got, ok := kubeEvent(e); ok {
			t.Errorf("%s is an Event: %+v", e.Kind, got)
		}
	}
}

// kube-apiserver writes no such Events: in its place, Catena does if it is configured to.
func TestNoEventsInPlaceOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	for _, c := range []*config.Config{
		{KubernetesEvents: config.EventsAuto, APIServerDefaults: config.KubernetesDefaults},
		{KubernetesEvents: config.EventsOff, APIServerDefaults: config.CatenaDefaults},
	} {
		if wantsEvents(c) {
			t.Errorf("%s with the defaults of %s writes Events", c.KubernetesEvents, c.APIServerDefaults)
		}
	}
	for _, c := range []*config.Config{
		{KubernetesEvents: config.EventsOn, APIServerDefaults: config.KubernetesDefaults},
		{KubernetesEvents: config.EventsAuto, APIServerDefaults: config.CatenaDefaults},
	} {
		if !wantsEvents(c) {
			t.Errorf("%s with the defaults of %s writes no Events", c.KubernetesEvents, c.APIServerDefaults)
		}
	}
}
