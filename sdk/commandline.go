package sdk

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/catena-dev/catena/sdk/stagev1"
)

const usage = `is a stage of Catena and runs as a part of it: put the file into one of the
pluginDirs of catena's configuration, name it among the stages, and start catena, which
starts it. On the command line, it takes one of these flags:

  --debug[=DIRECTORY]  wait, under a debugger for instance, for a host that attaches to this
                       process instead of starting one: catena serve --attach %s
  --describe           print what the stage is, and the schema of its configuration, as JSON
  --version            print its name and version
  --help               print this`

// runCommandLine runs a stage that was started by a user and not by a host.
func runCommandLine(stage Stage, args []string, out io.Writer) error {
	fs := flag.NewFlagSet(stage.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var debug debugFlag
	fs.Var(&debug, "debug", "")
	describe := fs.Bool("describe", false, "")
	version := fs.Bool("version", false, "")
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprintf(out, "catena-stage-%s "+usage+"\n", stage.Name, stage.Name)
		return err
	case err != nil:
		return fmt.Errorf("%w; see --help", err)
	case *describe:
		return printDescription(out, stage.describe())
	case *version:
		_, err = fmt.Fprintln(out, stage.Name, stage.describe().GetVersion())
		return err
	case debug.set:
		return serveDebug(stage, debug.dir, out)
	}
	return fmt.Errorf(usage, stage.Name)
}

// debugFlag is a flag whose value may be left out.
type debugFlag struct {
	set bool
	dir string
}

func (f *debugFlag) IsBoolFlag() bool { return true }

func (f *debugFlag) String() string { return f.dir }

// Set implements flag.Value. Without a value it is "true".
func (f *debugFlag) Set(value string) error {
	f.set = value != "false"
	if value != "true" && value != "false" {
		f.dir = value
	}
	return nil
}

// printDescription prints the response of Describe as JSON, with the schema as a part of it.
func printDescription(out io.Writer, d *stagev1.DescribeResponse) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Name         string          `json:"name"`
		Version      string          `json:"version,omitempty"`
		Summary      string          `json:"summary,omitempty"`
		SDK          string          `json:"sdk,omitempty"`
		Protocol     int             `json:"protocol"`
		Standby      bool            `json:"standby,omitempty"`
		ConfigSchema json.RawMessage `json:"configSchema,omitempty"`
	}{
		d.GetName(), d.GetVersion(), d.GetSummary(), d.GetSdk(), stagev1.ProtocolVersion,
		d.GetStandby(), json.RawMessage(d.GetConfigSchema()),
	})
	if err != nil {
		return fmt.Errorf("the stage's description: %w", err)
	}
	return nil
}
