package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
)

// stageBinary is the value of a flag with the binary of a stage: the absolute path of a file, or config.BuiltinBinary.
type stageBinary string

// Set implements pflag.Value.
func (b *stageBinary) Set(text string) error {
	if text != "" && text != config.BuiltinBinary {
		path, err := filepath.Abs(text)
		if err != nil {
			return err
		}
		text = path
	}
	*b = stageBinary(text)
	return nil
}

func (b *stageBinary) String() string { return string(*b) }

// Type implements pflag.Value.
func (b *stageBinary) Type() string { return "string" }

// registerBinary registers --binary, which names the binary of a stage.
func registerBinary(cmd *cobra.Command, binary *string, usage string) {
	usage += "; " + config.BuiltinBinary + " for the stage that is in the host's own program"
	cmd.Flags().Var((*stageBinary)(binary), "binary", usage)
	_ = cmd.MarkFlagFilename("binary")
}
