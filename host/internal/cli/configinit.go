package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/printable"
)

func configInitCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration file to begin with",
		Long: `Write a configuration file to begin with: the chain of Kubernetes' stages, the directories of an
installed Catena, and the defaults of what is used most as comments. It is the file that
packages install as /etc/catena/catena.yaml. FILE is catena.yaml unless it is given, and - is
standard output.`,
		Example: `  catena config init /etc/catena/catena.yaml
  catena config init - | less`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return wantArgs(1, "the name of one file")(cmd, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, onlyThese
			}
			return []cobra.Completion{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file := "catena.yaml"
			if len(args) > 0 {
				file = args[0]
			}
			if file == "-" {
				_, err := cmd.OutOrStdout().Write(config.Initial())
				return err
			}
			if err := writeInitial(file, force); err != nil {
				return err
			}
			_, err := printable.Fprintln(cmd.OutOrStdout(), file, "written")
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

// writeInitial writes the initial configuration. With force, it replaces a file.
func writeInitial(path string, force bool) error {
	how := os.O_EXCL
	if force {
		how = os.O_TRUNC
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|how, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: --force replaces it", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(config.Initial())
	return errors.Join(err, f.Close())
}
