package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
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
}

func explainCommand() *cobra.Command {
	var flags configFlags
	var output, as string
	var groups []string
	cmd := &cobra.Command{
		Use:   "explain METHOD PATH",
		Short: "Print which stages a request would come to, and whether a user may make it",
		Long: `Print which stages would be asked for a request, in which order and because of which
claims, and who answers if they decline. Nothing is sent. A running host is asked for
the claims of the moment; if none runs on the data folder, the claims of the last run
are used. With --as, the running host's authorizers are asked, too. PATH can have a
query, which tells a watch from a list.

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
	states := map[string]string{}
	for _, st := range s.stages.Status() {
		states[st.Stage] = st.State
	}
	if published := s.published.Load(); published != nil {
		for _, st := range *published {
			e.add(chain.StageClaims{Name: st.Name, Claims: claimsOf(st.Claims)}, states[st.Name])
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

// asked are the stages that are asked, in order.
func (e *explanation) asked() []string {
	var names []string
	for _, a := range e.Stages {
		if a.Order > 0 {
			names = append(names, a.Stage)
		}
	}
	return names
}

func (e *explanation) print(out io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(e)
	}
	fmt.Fprintf(out, "%s %s\n\n", e.Method, e.Path)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "STAGE\tASKED\tCLAIM\tSTATE")
	for _, a := range e.Stages {
		order, claim, state := "no", "none covers the path", a.State
		if a.Order > 0 {
			order = fmt.Sprintf("%d.", a.Order)
		}
		if a.Claim != "" {
			claim = a.Claim
		}
		if state == "" {
			state = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.Stage, order, claim, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(e.sentences(), "\n"))
	return err
}

// sentences say who answers, and whether the user may ask.
func (e *explanation) sentences() []string {
	var all []string
	switch names := e.asked(); {
	case e.Host:
		all = append(all, "The host itself answers.")
	case len(names) == 0:
		all = append(all, "No stage claims the path: "+e.ending()+".")
	default:
		all = append(all, strings.Join(names, " answers, or declines; then ")+" answers, or declines; then "+e.ending()+".")
	}
	for _, a := range e.Stages {
		if a.Order > 0 && e.Running && a.State != "serving" {
			all = append(all, fmt.Sprintf("Stage %s is %s: requests that come to it wait, or get 503.", a.Stage, a.State))
		}
	}
	if !e.Running {
		all = append(all, "No host runs on this data folder: these are the claims of the last run.")
	}
	if a := e.Access; a != nil {
		verdict := "may not"
		if a.Allowed {
			verdict = "may"
		}
		line := fmt.Sprintf("%s (in %s) %s %s", a.User, strings.Join(a.Groups, ", "), verdict, a.Request)
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		all = append(all, line)
	}
	return all
}

// ending is what comes behind the last stage.
func (e *explanation) ending() string {
	if e.Incomplete != "" {
		return fmt.Sprintf("503, since stage %s does not know all of its paths yet", e.Incomplete)
	}
	return "404"
}
