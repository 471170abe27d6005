package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

func swapCommand() *cobra.Command {
	var flags configFlags
	var binary, sha256, output string
	var rollbackOn []string
	var probation time.Duration
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

With --rollback-on the old process is kept for the time of --probation and takes its
place again if the new one fails: errors=5% if more than that share of its requests
fails, health if its health checks do. Without these flags the stage's rollbackOn and
probation of the configuration are in force.`,
		Example: `  catena swap core
  catena swap hello --binary ./catena-stage-hello-v2 --sha256 "$(sha256sum < catena-stage-hello-v2 | cut -c -64)"
  catena swap hello --rollback-on errors=5%,health --probation 30s`,
		Args: wantArgs(1, "the name of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			req := admin.SwapRequest{Stage: args[0], Binary: binary, SHA256: sha256}
			var err error
			if req.Rollback, err = parseRollback(rollbackOn, probation); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			if binary != "" {
				if req.Binary, err = filepath.Abs(binary); err != nil {
					return err
				}
			}
			swapped, err := client.Swap(cmd.Context(), req)
			if err != nil {
				return err
			}
			return printSwapped(cmd.OutOrStdout(), output, swapped)
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.ValidArgsFunction = flags.completeStages(1)
	cmd.Flags().StringVar(&binary, "binary", "", "`file` of the new process; the present one if not given")
	cmd.Flags().StringVar(&sha256, "sha256", "", "`digest` that the file must have, in hexadecimal; approves a file that is not in catena.lock")
	cmd.Flags().StringSliceVar(&rollbackOn, "rollback-on", nil, "go back to the old process on `errors=N%`, on health, or on both, separated by a comma")
	cmd.Flags().DurationVar(&probation, "probation", 0, "`time` for which the old process is kept to go back to")
	_ = cmd.MarkFlagFilename("binary")
	_ = cmd.RegisterFlagCompletionFunc("rollback-on", cobra.FixedCompletions([]string{"errors=5%", "health", "errors=5%,health"}, onlyThese))
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
	if s.Probation > 0 {
		also += fmt.Sprintf("; on probation for %s", s.Probation)
	}
	_, err := fmt.Fprintf(out, "stage %s swapped: %s → %s (version %s, ready after %s)%s\n",
		s.Stage, s.From, s.To, s.Version, s.Ready.Round(time.Millisecond), also)
	return err
}
