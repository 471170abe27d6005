package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

func upgradeCommand() *cobra.Command {
	var flags configFlags
	var req admin.HostUpgradeRequest
	cmd := &cobra.Command{
		Use:   "upgrade [--binary FILE]",
		Short: "Have another program take the place of the host, or a stage go to another release",
		Long: `Have another program take the place of the running host, with the same arguments and in
the same process, so that its number stays. Connections are accepted all the time: the
requests of those that come meanwhile wait until the new program is ready. Requests under
way finish first, watches end as at the end of a server, and each stage is started anew.

Before anything changes, the program checks the configuration and whether it can take
over. If it does not come up after that, within two minutes, the one before has its place
back. A program of an older release of Kubernetes is refused unless --allow older.

Stages go to another binary with catena swap; upgrade plan and upgrade finalize belong to
that.`,
		Example: `  catena upgrade                          # the present path names another file by now
  catena upgrade --binary /opt/catena/catena`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Binary != "" {
				path, err := filepath.Abs(req.Binary)
				if err != nil {
					return err
				}
				req.Binary = path
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			before, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			began := time.Now()
			if err := client.UpgradeHost(cmd.Context(), req); err != nil {
				return err
			}
			after, err := awaitSuccessor(cmd.Context(), client, before.Host.Since)
			if err != nil {
				return err
			}
			took := time.Since(began).Round(time.Millisecond)
			if n := len(after.Changes); n > 0 && after.Changes[n-1].Error != "" {
				return fmt.Errorf("catena %s has its place back after %s: %s", after.Host.Version, took, after.Changes[n-1].Error)
			}
			_, err = printable.Fprintf(cmd.OutOrStdout(), "host upgraded: %s → %s (Kubernetes %s, pid %d, ready after %s)\n",
				before.Host.Version, after.Host.Version, after.Host.KubernetesVersion, after.Host.PID, took)
			return err
		},
	}
	flags.registerHost(cmd)
	cmd.Flags().StringVar(&req.Binary, "binary", "", "`file` of the other program; the path of the present one if not given")
	cmd.Flags().StringSliceVar(&req.Allow, "allow", nil, "`older`: the program may be of an older release of Kubernetes")
	_ = cmd.MarkFlagFilename("binary")
	_ = cmd.RegisterFlagCompletionFunc("allow", cobra.FixedCompletions([]string{"older"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(upgradePlanCommand(), upgradeFinalizeCommand())
	return cmd
}

// awaitSuccessor returns the status of the program that has taken the place of a host which was started then, when it is ready.
func awaitSuccessor(ctx context.Context, client *admin.Client, since time.Time) (admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, successorTimeout)
	defer cancel()
	for {
		status, err := client.Status(ctx)
		if err == nil && !status.Host.Since.Equal(since) && status.Host.Ready {
			return status, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return status, fmt.Errorf("the host is not ready %s after the upgrade began: its log says why", successorTimeout)
		}
	}
}

// successorTimeout is how long a host may take to hand over, the other program to give up, and the first to be ready again.
const successorTimeout = 6 * time.Minute

func upgradePlanCommand() *cobra.Command {
	var flags configFlags
	var req admin.PlanRequest
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "plan STAGE --binary FILE",
		Short: "Say what a stage of another release of Kubernetes would change, and move nothing",
		Long: `Start the binary beside the process that serves, without giving it a request of a client, and
compare the two:

  - settings of the stage (flags, feature gates, admission plugins) that the new release does not know;
  - resources that it serves no more, and who has used them since the host started, and new ones;
  - versions in which objects are in the store that one of the two releases cannot read, on the
    way there or on the way back;
  - fields of stored objects that the two read differently, for a sample of each resource.

Nothing is written: the post-start hooks of the new process do not run. Its requests are in the
audit log, as those of system:apiserver.

The exit code is 0 if nothing is in the way, 2 if the upgrade would lose data, break a client that has
used the server or not start, and 1 if there is no plan.`,
		Example: `  catena upgrade plan core --binary bin/kube-1.36/catena-stage-core`,
		Args:    wantArgs(1, "the name of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			switch {
			case req.Binary == "":
				return fmt.Errorf("--binary is required: the file of the other release")
			case req.Sample < 1:
				return fmt.Errorf("--sample %d: must be positive", req.Sample)
			case timeout <= 0:
				return fmt.Errorf("--timeout %s: must be positive", timeout)
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			req.Stage = args[0]
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout,
				fmt.Errorf("no plan within %s (--timeout); nothing has moved", timeout))
			defer cancel()
			plan, err := client.PlanUpgrade(ctx, req)
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return err
			}
			if err := printPlan(cmd.OutOrStdout(), output, plan); err != nil {
				return err
			}
			if len(plan.Blocked()) > 0 {
				return exitCode(2)
			}
			return nil
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.ValidArgsFunction = flags.completeStages(1)
	registerBinary(cmd, &req.Binary, "`file` of the other release")
	cmd.Flags().StringVar(&req.SHA256, "sha256", "", "`digest` that the file must have, in hexadecimal; approves a file that is not in catena.lock")
	cmd.Flags().BoolVar(&req.Emulate, "emulate", false, "as catena swap --emulate")
	cmd.Flags().IntVar(&req.Sample, "sample", 50, "`number` of objects of each resource that are compared")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "`time` within which the plan is to be there")
	return cmd
}

func upgradeFinalizeCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "finalize STAGE",
		Short: "Let a stage serve as its own release of Kubernetes",
		Long: `Swap a stage that serves as an older release, after "catena swap --emulate", to a process of the same
binary that serves as its own: with the resources that are new in it, and in the store with its versions of
objects. Whether the way back is safe after that, "catena upgrade plan" with the older binary says.`,
		Example: `  catena upgrade finalize core`,
		Args:    wantArgs(1, "the name of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			swapped, err := client.Swap(cmd.Context(), admin.SwapRequest{Stage: args[0], Finalize: true})
			if err != nil {
				return err
			}
			return printSwapped(cmd.OutOrStdout(), output, swapped)
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.ValidArgsFunction = flags.completeStages(1)
	return cmd
}

func printPlan(out io.Writer, format string, p *upgrade.Plan) error {
	if format == "json" {
		return printJSON(out, p)
	}
	var b strings.Builder
	printable.Fprintf(&b, "%s: %s → %s; %d objects in the store, %d compared\n", p.Stage, p.From, p.To, p.Objects, p.Compared)
	for _, f := range p.Findings {
		mark := " "
		if f.Blocks {
			mark = "!"
		}
		printable.Fprintf(&b, "%s %s: %s: %s\n", mark, f.Topic, f.Name, f.Detail)
		for _, c := range f.Clients {
			printable.Fprintf(&b, "    %s: %d requests\n", c.UserAgent, c.Requests)
		}
	}
	if n := len(p.Blocked()); n > 0 {
		printable.Fprintf(&b, "%d findings (!) are in the way\n", n)
	} else {
		b.WriteString("nothing is in the way\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
