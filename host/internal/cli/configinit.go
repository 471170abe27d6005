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
	var force, installed bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration file to begin with",
		Long: `Write a configuration file to begin with: what holds without one, and the defaults of what is used
most as comments. With --installed, it is the file that packages install as
/etc/catena/catena.yaml, with their directories. FILE is catena.yaml unless it is given, and - is
standard output.`,
		Example: `  catena config init && catena serve --config catena.yaml
  catena config init --installed /etc/catena/catena.yaml
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
				_, err := cmd.OutOrStdout().Write(config.Initial(installed))
				return err
			}
			if err := writeInitial(file, config.Initial(installed), force); err != nil {
				return err
			}
			_, err := printable.Fprintln(cmd.OutOrStdout(), file, "written")
			return err
		},
	}
	cmd.Flags().BoolVar(&installed, "installed", false, "write the configuration that packages install")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

// writeInitial writes a file to begin with. With force, it replaces one.
func writeInitial(path string, text []byte, force bool) error {
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
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
