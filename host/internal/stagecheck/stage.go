package stagecheck

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// stage is one running process of the binary with a host around it.
type stage struct {
	process    *process.Process
	rpc        stagev1.StageClient
	listener   *process.Listener
	name       string
	dir        string
	dataDir    string
	flags      []string
	wait       patience
	token      string
	client     *http.Client // makes requests that the relay takes to the stage
	next       *downstream
	chain      *relay.Chain
	configured *stagev1.ConfigureResponse
	prepared   *stagev1.PrepareRunResponse // what Configure has reported if there is no PrepareRun
	path       string                      // serves ordinary requests; see suite.path
	status     int                         // of its response to GET
	idle       *rawConn
	log        *processLog
	events     events
	headers    *headers
	ending     bool // its end is expected
	closers    []func()
}

// launch starts the binary and builds the chain around it: the stage, and one downstream
// that responds to everything.
func (s *suite) launch(ctx context.Context) (*stage, error) {
	st := &stage{name: s.binary.Name, flags: s.opts.Flags, wait: s.wait, token: rand.Text(), log: s.logs.process(s.check)}
	st.next = &downstream{seen: map[string]seen{}}
	if s.opts.Through != "" {
		st.next.through = strings.TrimSuffix(s.opts.Through, "/") + "/"
	}
	if err := s.build(ctx, st); err != nil {
		st.close()
		return nil, err
	}
	d := st.process.Description()
	s.report.Version, s.report.SDK, s.report.Control = d.GetVersion(), d.GetSdk(), string(st.process.Control())
	return st, nil
}

func (s *suite) build(ctx context.Context, st *stage) error {
	var err error
	if st.dir, err = os.MkdirTemp(s.dir, "s"); err != nil {
		return err
	}
	st.closers = append(st.closers, func() { _ = os.RemoveAll(st.dir) })
	st.dataDir = filepath.Join(st.dir, "data")
	if err := os.Mkdir(st.dataDir, 0o700); err != nil {
		return err
	}
	if st.listener, err = process.NewListener(st.dir, "stage"); err != nil {
		return err
	}
	st.closers = append(st.closers, func() { _ = st.listener.Close() })
	if err := st.serve(); err != nil {
		return err
	}
	st.process, err = process.Start(ctx, process.Spec{
		Stage: s.binary.Name, Binary: s.binary.Path, Listener: st.listener, RuntimeDir: s.dir, Env: s.opts.Env,
		StartTimeout: s.opts.Timeout, Logger: st.log.logger(hclog.Info),
	})
	if err != nil {
		return err
	}
	st.rpc = st.process.Client()
	st.closers = append(st.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = st.process.Kill(ctx)
	})
	return nil
}

// close ends everything, whatever state it is in.
func (st *stage) close() {
	for i := len(st.closers) - 1; i >= 0; i-- {
		st.closers[i]()
	}
	st.closers = nil
}

// configure calls Configure as the host does.
func (st *stage) configure(ctx context.Context, config json.RawMessage, standby bool) error {
	resp, err := st.rpc.Configure(ctx, &stagev1.ConfigureRequest{
		Name:   st.name,
		Config: config,
		Flags:  st.flags,
		Host: &stagev1.Host{
			Socket: st.hostSocket(), Token: st.token, User: "stagecheck", Groups: []string{"system:authenticated"},
			ServerVersion: "v1.0.0", ExternalUrl: "https://localhost:6443",
		},
		Delegates:  []*stagev1.Delegate{{Name: nextName, Claims: []*stagev1.Claim{{Path: "/", Match: stagev1.Claim_PREFIX}}}},
		DataDir:    st.dataDir,
		Generation: rand.Text()[:8],
		Standby:    standby,
	})
	st.configured = resp
	return err
}

// prepare calls PrepareRun and puts the stage into the chain.
func (st *stage) prepare(ctx context.Context) error {
	if st.configured == nil {
		return nil
	}
	resp, err := st.rpc.PrepareRun(ctx, &stagev1.PrepareRunRequest{})
	if status.Code(err) == codes.Unimplemented {
		resp, err = &stagev1.PrepareRunResponse{Claims: st.configured.GetClaims(), ListedPaths: st.configured.GetListedPaths()}, nil
	}
	if err != nil {
		return err
	}
	st.prepared = resp
	st.claim(resp.GetClaims())
	return nil
}

// granted is what an operator grants the stage who reads what it declares to need: everything, if
// it declares nothing.
func (st *stage) granted() grants.Grants {
	needs := st.process.Description().GetNeeds()
	if needs == nil {
		return grants.All()
	}
	return grants.Of(needs)
}

// claim makes the chain follow the stage's claims, of which those count that it is granted.
func (st *stage) claim(claims []*stagev1.Claim) {
	decoded, granted := stagev1.DecodeClaims(claims), st.granted()
	decoded = slices.DeleteFunc(decoded, func(c claim.Claim) bool { return !granted.AllowsClaim(c) })
	table := grants.NewTable([]grants.Stage{
		{Name: st.name, Claims: decoded, Grants: granted},
		{Name: nextName, Claims: []claim.Claim{claim.Prefix("/")}, Grants: grants.All()},
	})
	st.chain.Set(relay.Tables{All: table}, []relay.Stage{
		{
			Name: st.name, Socket: st.listener.Path(), Kubernetes: granted.Kubernetes(),
			DiscardsBodies: st.process.Description().GetDiscardsBodies(),
		},
		{Name: nextName, Socket: st.next.socket, DiscardsBodies: true},
	})
}

// unimplemented reports whether an error is that a stage lacks the method.
func unimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// reason returns the message of a stage's error, without that of the host.
func reason(err error) string {
	if call := (*process.CallError)(nil); errors.As(err, &call) {
		return fmt.Sprintf("%s: %s", call.Status.Code(), call.Status.Message())
	}
	return err.Error()
}
