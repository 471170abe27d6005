package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// registerOutput adds the flag --output with its values, for people and for shells.
func registerOutput(cmd *cobra.Command, output *string, formats ...string) {
	last := len(formats) - 1
	usage := fmt.Sprintf("output `format`: %s or %s", strings.Join(formats[:last], ", "), formats[last])
	cmd.Flags().StringVarP(output, "output", "o", formats[0], usage)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput refuses an output format that the command does not have.
func checkOutput(format string, formats ...string) error {
	for _, f := range formats {
		if f == format {
			return nil
		}
	}
	return fmt.Errorf("--output %q: this command prints %s", format, strings.Join(formats, ", "))
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
