package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
)

func explainCommand() *cobra.Command {
	var flags configFlags
	var output, as string
	var groups []string
	cmd := &cobra.Command{
		Use:   "explain METHOD PATH",
		Short: "Print which stages a request would come to, and whether a user may make it",
		Long: `Print which stages would be asked for a request, in which order and because of which
claims, and what responds if they pass it on. Nothing is sent. A running host is asked for
the claims of the moment; if none runs on the data directory, the claims of the last run
are used. With --as, the running host's authorizers are asked, too. PATH can have a
query, by which a watch differs from a list.

A stage passes a request on by declining it, or by a call, whose response comes back to it.
Which of the two happens can depend on the request: OUTCOMES are those of all requests
to the stage since the host started, on any path, the most frequent ones first.

For a request that is really made, send the header "X-Catena-Explain: 1": if you may
get /debug/catena/chain, the response has the stages that it came to in "X-Catena-Trail".`,
		Example: `  catena explain GET /api/v1/namespaces
  catena explain DELETE /apis/apps/v1/namespaces/default/deployments/web --as jane --as-group dev`,
		Args: wantArgs(2, "a method and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if as == "" && len(groups) > 0 {
				return errors.New("--as-group needs --as")
			}
			e, err := explain(cmd, &flags, strings.ToUpper(args[0]), args[1], as, groups)
			if err != nil {
				return err
			}
			return printExplanation(cmd.OutOrStdout(), output, e)
		},
	}
	flags.register(cmd)
	cmd.ValidArgsFunction = completeMethod
	registerOutput(cmd, &output, "text", "json")
	cmd.Flags().StringVar(&as, "as", "", "`user` whose rights are looked up")
	cmd.Flags().StringArrayVar(&groups, "as-group", nil, "`group` of that user; may be given more than once")
	return cmd
}

// completeMethod offers the methods as the first argument.
func completeMethod(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, onlyThese
	}
	return []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}, onlyThese
}

// explain asks the running host, or else what the last one has left.
func explain(cmd *cobra.Command, flags *configFlags, method, target, as string, groups []string) (*admin.Explanation, error) {
	if !strings.HasPrefix(target, "/") {
		return nil, fmt.Errorf("path %q: must begin with /", target)
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	client, err := flags.client()
	if err != nil {
		return nil, err
	}
	e, err := client.Explain(cmd.Context(), admin.ExplainRequest{Method: method, Path: target, As: as, Groups: groups})
	if !admin.IsNotRunning(err) {
		return e, errors.Join(flags.useless(cmd), err)
	}
	if as != "" {
		return nil, fmt.Errorf("who may do what is known to a running host only: %w", err)
	}
	if len(flags.options().Files) == 0 && !flags.given() {
		return nil, fmt.Errorf("no host runs on the data directory %s, and without one it takes a configuration: pass --config FILE or set %s", client.DataDir, configVariable)
	}
	full, err := flags.load()
	if err != nil {
		return nil, fmt.Errorf("no host runs on the data directory %s, and without one it takes a configuration: %w", client.DataDir, err)
	}
	return explainOffline(full, method, parsed.Path), nil
}

// explainOffline goes by the claims of the last run.
func explainOffline(cfg *config.Config, method, path string) *admin.Explanation {
	known := datadir.ReadClaims(cfg.DataDir)
	e := &admin.Explanation{Method: method, Path: path}
	for _, name := range cfg.Order {
		added := e.Add(chain.StageClaims{Name: name, Claims: known[name]})
		if _, ok := known[name]; !ok {
			added.State = "not known: it has not run on this data directory"
		}
	}
	return e
}
