package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/suggest"
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
	hint := suggest.DidYouMean(format, formats)
	return fmt.Errorf("--output %q: this command prints %s%s", format, strings.Join(formats, ", "), hint)
}

func printJSON(out io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := out.Write(printable.JSON(b.Bytes()))
	return err
}

// registerOut adds the flag --out to a command that prints secrets.
func registerOut(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "out", "", "`file` to write in place of standard output; only its owner can read it")
	_ = cmd.MarkFlagFilename("out")
}

// writeOut has write print into the file of --out, or to standard output without one.
func writeOut(cmd *cobra.Command, path string, write func(io.Writer) error) error {
	if path == "" {
		return write(cmd.OutOrStdout())
	}
	if err := checkFile(path); err != nil {
		return err
	}
	return guard.WriteFile(path, write)
}

// checkFile returns an error if a file that is to be written would take the place of something else than a file: of a link of
// another user, or /dev/stdout.
func checkFile(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s exists and is no file, but a %s: name another", path, kindOf(info.Mode()))
	}
	return err
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "link"
	case mode.IsDir():
		return "directory"
	}
	return "device, pipe or socket"
}
