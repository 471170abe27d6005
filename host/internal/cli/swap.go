package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

func swapCommand() *cobra.Command {
	var flags configFlags
	var emulate bool
	var binary, sha256, output string
	var rollbackOn, allow []string
	var probation, timeout time.Duration
	var move moveFlags
	cmd := &cobra.Command{
		Use:   "swap STAGE",
		Short: "Replace the process of a stage of a running host by a new one",
		Long: `Start a new process of a stage beside the one that serves, wait until it is ready,
move new requests to it at one point in time, and let the old one finish what it
has. If the new one does not become ready, the old one stays and the command says
why. With --binary the new process is started from that file, and so are later
restarts, until the configuration is applied again or the host ends.

A stage that needs a lock is only swapped to a file that is in catena.lock, where "catena
lock STAGE --binary FILE" puts it, or that has the digest of --sha256. That digest is approved
until the configuration is applied again or the host ends. stages.STAGE.sha256 refuses
other files in either case.

The old process is kept for the time of --probation and takes its place again if the new
one ends, or on what --rollback-on names: errors=5% if more than that share of its requests
fails, health if its health checks do. Without these flags the stage's rollbackOn and
probation of the configuration are in force: health for ten seconds if they are not set.

With --canary both processes serve at first, and only a share of the clients has the new one: each
client stays on one side, and moves to the new one when the share of --then has come to it, after the
time of --for for each step, and to 100% in the end. "catena status STAGE" compares the two. The old process has
all requests again as soon as a condition of --rollback-on holds: errors=1%, refused=1% and latency=20%
are by how much more of the new side's requests fail, are writes that are not accepted, or take longer
than the same kinds of requests to the old process; errors=1% if none is given, and health in any case. If either process
ends, the other one has all. --promote lets the new process stay at once, and --rollback gives the old one
its place back; both work after any swap that is on probation, too.

A stage of Kubernetes goes to another minor release only if nothing is in the way that "catena
upgrade plan" would tell of: objects that one of the two cannot read, a client that uses what goes,
settings that the new one does not know. --allow names findings to ignore. The stage controllers goes
along with core, to catena-stage-controllers beside the file of --binary, and comes back with it. With
--emulate the new process serves, and writes to the store, as the minor release that serves now, until
"catena upgrade finalize": until then the way back is safe.`,
		Example: `  catena swap core
  catena swap hello --binary ./catena-stage-hello-v2 --sha256 "$(sha256sum < catena-stage-hello-v2 | cut -c -64)"
  catena swap hello --rollback-on errors=5%,health --probation 30s
  catena swap core --canary 5% --by user --for 10m --then 25%
  catena swap core --promote
  catena swap core --binary builtin`,
		Args: wantArgs(1, "the name of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if keep, wanted, err := move.concludes(cmd); wanted || err != nil {
				if err != nil {
					return err
				}
				client, err := flags.client()
				if err != nil {
					return err
				}
				if err := client.Conclude(cmd.Context(), admin.ConcludeRequest{Stage: args[0], Keep: keep}); err != nil {
					return err
				}
				which := map[bool]string{false: "old", true: "new"}[keep]
				_, err = printable.Fprintf(cmd.OutOrStdout(), "stage %s: the %s process has all requests\n", args[0], which)
				return err
			}
			req := admin.SwapRequest{Stage: args[0], Binary: binary, SHA256: sha256, Allow: allow, Emulate: emulate}
			var err error
			if req.Canary, rollbackOn, err = move.canary(cmd, rollbackOn); err != nil {
				return err
			}
			if req.Rollback, err = parseRollback(rollbackOn, probation); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			var swapped supervisor.Swapped
			err = within(cmd.Context(), timeout, fmt.Sprintf("stage %q goes on with its old process: it has not been swapped", req.Stage), func(ctx context.Context) (err error) {
				swapped, err = client.Swap(ctx, req)
				return err
			})
			if err != nil {
				return err
			}
			return printSwapped(cmd.OutOrStdout(), output, swapped)
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	registerTimeout(cmd, &timeout)
	cmd.ValidArgsFunction = flags.completeStages(1)
	registerBinary(cmd, &binary, "`file` of the new process, the present one if not given")
	cmd.Flags().StringVar(&sha256, "sha256", "", "`digest` that the file must have, in hexadecimal; approves a file that is not in catena.lock")
	cmd.Flags().StringSliceVar(&rollbackOn, "rollback-on", nil,
		"go back to the old process on `errors=N%`, on health or, with --canary, on refused=N% or latency=N%, separated by commas")
	cmd.Flags().DurationVar(&probation, "probation", 0, "`time` for which the old process is kept to go back to")
	move.register(cmd)
	cmd.Flags().BoolVar(&emulate, "emulate", false, "serve as the minor release of Kubernetes that serves now, until catena upgrade finalize")
	cmd.Flags().StringSliceVar(&allow, "allow", nil, "`name` of a finding of a plan that is not to keep the stage from another release of Kubernetes")
	_ = cmd.RegisterFlagCompletionFunc("rollback-on", cobra.FixedCompletions([]string{"errors=5%", "health",
		"errors=5%,health", "errors=1%,refused=1%,latency=20%"}, onlyThese))
	return cmd
}

// parseRollback is zero if neither flag is given.
func parseRollback(conditions []string, probation time.Duration) (supervisor.Rollback, error) {
	if probation < 0 {
		return supervisor.Rollback{}, fmt.Errorf("--probation %s: must not be negative", probation)
	}
	r, err := config.ParseRollback(conditions)
	if err != nil {
		return supervisor.Rollback{}, fmt.Errorf("--rollback-on: %w", err)
	}
	return supervisor.Rollback{ErrorRate: r.ErrorRate, Health: r.Health, Probation: probation}, nil
}

func printSwapped(out io.Writer, format string, s supervisor.Swapped) error {
	if format == "json" {
		return printJSON(out, s)
	}
	also := ""
	if len(s.Also) > 0 {
		also = ", and with it " + strings.Join(s.Also, ", ")
	}
	ready := s.Ready.Round(time.Millisecond)
	if c := s.Canary; c != nil {
		_, err := printable.Fprintf(out,
			"stage %s: %s go to %s (version %s, ready after %s)%s, the others to %s; "+
				"catena status %[1]s shows how it goes\n",
			s.Stage, c.By.Share(c.Shares[0]), s.To, s.Version, ready, also, s.From)
		return err
	}
	if s.Probation > 0 {
		also += fmt.Sprintf("; on probation for %s", s.Probation)
	}
	_, err := printable.Fprintf(out, "stage %s swapped: %s → %s (version %s, ready after %s)%s\n",
		s.Stage, s.From, s.To, s.Version, ready, also)
	return err
}
