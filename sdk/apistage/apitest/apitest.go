// Package apitest runs an API group in a test: in this process, alone, with a store that
// ends with the test. Everything is allowed there; admission plugins that need other
// stages are off.
package apitest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// Start serves a group until the test ends, and runs its post-start hooks. Requests are
// made by the user of opts, or by the administrator. Flags of opts come after those of Flags. What the group asks for
// in its own name comes back to it, and opts.API serves the objects of other groups.
func Start(t testing.TB, group apistage.Group, opts stagetest.Options) *stagetest.Stage {
	t.Helper()
	opts.Flags = append(Flags(Store(t)), opts.Flags...)
	if opts.User == nil {
		opts.User = &sdk.User{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}}
	}
	stage := stagetest.Start(t, group.Stage(), opts)
	stage.RunPostStartHooks(t)
	return stage
}

// Flags are those of an API server that is alone, with its store at an address.
func Flags(store string) []string {
	return []string{
		"authorization-mode=AlwaysAllow",
		"etcd-servers=" + store,
		"disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook," +
			"ValidatingAdmissionPolicy,ValidatingAdmissionWebhook,ResourceQuota",
	}
}

// startTime bounds the start of a store.
const startTime = time.Minute

// Store starts an etcd in this process and returns its address.
func Store(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	client := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s")}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.AdvertiseClientUrls = nil, []url.URL{client}, []url.URL{client}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.EnableGRPCGateway = false
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatalf("store: %v", err)
	}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(startTime):
		t.Fatal("store: does not get ready")
	}
	return "unix://" + client.Path
}
