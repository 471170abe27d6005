package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
)

// explanation is what would happen to a request.
type explanation struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Running says that a running host has told this. If not, it is what the claims of
	// the last run make of the configuration.
	Running bool `json:"running"`
	// Host says that no stage is asked: the host itself answers.
	Host   bool       `json:"host,omitempty"`
	Stages []askStage `json:"stages"`
	// Incomplete is a stage that may have paths that it does not know yet.
	Incomplete string        `json:"incomplete,omitempty"`
	Access     *front.Access `json:"access,omitempty"`
}

// askStage is a stage, in the order of the chain.
type askStage struct {
	Stage string `json:"stage"`
	// Order is the place in which the stage is asked, from 1; 0 if it is not.
	Order int `json:"order,omitempty"`
	// Claim is the one that covers the path, the longest if there are more.
	Claim string `json:"claim,omitempty"`
	State string `json:"state,omitempty"`
	// Outcomes say how the requests to the stage have ended since the host started:
	// declined, called, served and so on. Only a running host has counted them.
	Outcomes map[relay.Outcome]uint64 `json:"outcomes,omitempty"`
}

func explainCommand() *cobra.Command {
	var flags configFlags
	var output, as string
	var groups []string
	cmd := &cobra.Command{
		Use:   "explain METHOD PATH",
		Short: "Print which stages a request would come to, and whether a user may make it",
		Long: `Print which stages would be asked for a request, in which order and because of which
claims, and who answers if they hand it on. Nothing is sent. A running host is asked for
the claims of the moment; if none runs on the data folder, the claims of the last run
are used. With --as, the running host's authorizers are asked, too. PATH can have a
query, which tells a watch from a list.

A stage hands a request on by declining it, or by a call, whose answer comes back to it.
Which of the two happens can depend on the request: OUTCOMES are those of all requests
to the stage since the host started, on any path, the most frequent ones first.

For a request that is really made, send the header "X-Catena-Explain: 1": if you may
get /debug/catena/chain, the answer has the way that it went in "X-Catena-Trail".`,
		Example: `  catena explain GET /api/v1/namespaces
  catena explain DELETE /apis/apps/v1/namespaces/default/deployments/web --as jane --as-group dev`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if as == "" && len(groups) > 0 {
				return errors.New("--as-group needs --as")
			}
			e, err := explain(cmd.Context(), &flags, strings.ToUpper(args[0]), args[1], as, groups)
			if err != nil {
				return err
			}
			return e.print(cmd.OutOrStdout(), output)
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.Flags().StringVar(&as, "as", "", "`user` whose rights are looked up")
	cmd.Flags().StringArrayVar(&groups, "as-group", nil, "`group` of that user; may be given more than once")
	return cmd
}

// explain asks the running host, or else what the last one has left.
func explain(ctx context.Context, flags *configFlags, method, target, as string, groups []string) (*explanation, error) {
	if !strings.HasPrefix(target, "/") {
		return nil, fmt.Errorf("path %q: must begin with /", target)
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	cfg, err := flags.loadForFolders()
	if err != nil {
		return nil, err
	}
	query := url.Values{"method": {method}, "path": {target}, "as": {as}, "group": groups}
	e := &explanation{}
	err = callAdmin(ctx, cfg, http.MethodGet, "/explain?"+query.Encode(), nil, e)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		return e, err
	}
	if as != "" {
		return nil, fmt.Errorf("who may do what is known to a running host only: %w", err)
	}
	full, err := flags.load()
	if err != nil {
		return nil, fmt.Errorf("no host runs on the data folder %s, and without one it takes a configuration: %w", cfg.DataDir, err)
	}
	return explainOffline(full, method, parsed.Path), nil
}

// explainOffline goes by the claims of the last run.
func explainOffline(cfg *config.Config, method, path string) *explanation {
	known := readClaims(claimsFile(cfg.DataDir))
	e := &explanation{Method: method, Path: path}
	for _, name := range cfg.Order {
		st := chain.StageClaims{Name: name}
		for _, text := range known[name] {
			st.Claims = append(st.Claims, chain.ParseClaim(text))
		}
		e.add(st, "")
		if _, ok := known[name]; !ok {
			e.Stages[len(e.Stages)-1].State = "not known: it has not run on this data folder"
		}
	}
	return e
}

// add appends the next stage of the chain.
func (e *explanation) add(st chain.StageClaims, state string) {
	a := askStage{Stage: st.Name, State: state}
	best := chain.Claim{}
	for _, c := range st.Claims {
		if c.Covers(e.Path) && (a.Claim == "" || len(c.Path) > len(best.Path)) {
			best, a.Claim = c, c.String()
		}
	}
	if a.Claim != "" && !e.Host {
		a.Order = 1
		for _, before := range e.Stages {
			a.Order = max(a.Order, before.Order+1)
		}
	}
	e.Stages = append(e.Stages, a)
}

// serveExplain answers GET /explain on the admin socket.
func (s *server) serveExplain(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	method, target, as := q.Get("method"), q.Get("path"), q.Get("as")
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := &explanation{Method: method, Path: parsed.Path, Running: true, Host: s.front.Answers(parsed.Path)}
	states, outcomes := map[string]string{}, front.CountedHops()
	for _, st := range s.stages.Status() {
		states[st.Stage] = st.State
	}
	if published := s.published.Load(); published != nil {
		for _, st := range *published {
			e.add(chain.StageClaims{Name: st.Name, Claims: claimsOf(st.Claims)}, states[st.Name])
			e.Stages[len(e.Stages)-1].Outcomes = outcomes[st.Name]
		}
	}
	e.Incomplete = s.stages.Incomplete()
	if as != "" {
		access, err := s.front.MayDo(r.Context(), method, target, as, q["group"])
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.Access = &access
	}
	writeJSON(w, e)
}
