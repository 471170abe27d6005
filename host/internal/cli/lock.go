package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/lockfile"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func lockCommand() *cobra.Command {
	var flags configFlags
	var o lockOptions
	var keyFile, output string
	cmd := &cobra.Command{
		Use:   "lock [STAGE...]",
		Short: "Write which binaries may be executed as stages",
		Long: `Write catena.lock beside the first file of --config: name, platform, version, SHA-256
and declared needs of each stage. Print what has changed since it was last written. A stage
that needs a lock (stages.NAME.lock) is executed only from a file that is in it. With
names, only the entries of these stages change; without, entries of stages that the
configuration does not have are removed.

Each binary is started and asked what it is; none is configured. With --check none is
executed, nothing is written, and the exit code is 1 if something would change. With
--binary, FILE is added to the files that the stage has already, so that it can be swapped
to; the next "catena lock" keeps the one that is in place then.

The digest of a program is that of its file. The digest of a script covers all files in
its directory and below, but for other plugins and its signature; what runs too and is not
covered, such as the interpreter, is printed.

With --verify-key each binary needs a signature beside it, BINARY.sig, by the Ed25519 key:
64 bytes or their base64. It signs the bytes of a program, and the hexadecimal digest
of a script. If one is missing or wrong, nothing is executed or written.`,
		Example: `  catena lock --config /etc/catena/catena.yaml
  catena lock --check
  catena lock hello --binary ./catena-stage-hello-v2 --verify-key release.pem`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if err := o.complete(args, keyFile); err != nil {
				return err
			}
			if err := flags.adopt(cmd.Context()); err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			result, err := lock(cmd.Context(), cfg, o)
			if err != nil {
				return err
			}
			if err := result.print(cmd.OutOrStdout(), output); err != nil {
				return err
			}
			if o.check && len(result.Changes) > 0 {
				return exitCode(1)
			}
			return nil
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.ValidArgsFunction = flags.completeStages(math.MaxInt)
	registerBinary(cmd, &o.binary, "`file` to add for the one stage that is named")
	cmd.Flags().StringVar(&keyFile, "verify-key", "", "`file` with the Ed25519 public key, PEM, that must have signed each binary")
	cmd.Flags().BoolVar(&o.check, "check", false, "execute and write nothing; exit with 1 if something would change")
	_ = cmd.MarkFlagFilename("verify-key", "pem", "pub")
	return cmd
}

// lockOptions say what to lock.
type lockOptions struct {
	stages []string // all if empty
	binary string
	key    ed25519.PublicKey // nil: signatures are not looked at
	check  bool
}

// complete reads arguments and flags. Paths are relative to the working directory of the command.
func (o *lockOptions) complete(args []string, keyFile string) (err error) {
	o.stages = args
	if o.binary != "" && len(args) != 1 {
		return errors.New("lock --binary needs the name of the one stage that the file is for: " +
			"catena lock STAGE --binary FILE")
	}
	if keyFile != "" {
		if o.key, err = lockfile.ReadKey(keyFile); err != nil {
			return fmt.Errorf("--verify-key: %w", err)
		}
	}
	return nil
}

// lock brings the lock file up to date. After an error it is as it was.
func lock(ctx context.Context, cfg *config.Config, o lockOptions) (*lockResult, error) {
	file := cfg.LockFile()
	if file == "" {
		return nil, fmt.Errorf("%s is beside the file of --config, which is not given", lockfile.Name)
	}
	before, err := lockfile.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	stages, err := o.lockedStages(cfg)
	if err != nil {
		return nil, err
	}
	result := &lockResult{File: file}
	entries, err := result.examine(ctx, cfg, o, stages, before)
	if err != nil {
		return nil, err
	}
	after := before.Delete(func(e lockfile.Entry) bool {
		here := slices.Contains(stages, e.Stage) && e.Platform == declared.Platform && o.binary == ""
		gone := len(o.stages) == 0 && !slices.Contains(stages, e.Stage) && !slices.Contains(cfg.Disabled, e.Stage)
		return here || gone
	})
	after = lockfile.New(append(after.Entries, entries...)...)
	result.compare(before, after)
	if o.check || len(result.Changes) == 0 {
		return result, nil
	}
	result.Written = true
	return result, after.Write(file)
}

// lockedStages returns the names of the stages to lock.
func (o lockOptions) lockedStages(cfg *config.Config) ([]string, error) {
	var errs []error
	for _, name := range o.stages {
		if !cfg.NeedsLock(name) && !cfg.LocksOthers(name) {
			key := "stages." + name + ".lock"
			errs = append(errs, fmt.Errorf("%s: %s: is off, so that the stage needs no lock", cfg.Where(key), key))
		}
	}
	if len(o.stages) > 0 {
		return o.stages, errors.Join(errs...)
	}
	return slices.DeleteFunc(slices.Clone(cfg.Order), func(name string) bool {
		b, err := pluginOf(cfg, name)
		return err != nil && !cfg.NeedsLock(name) || err == nil && !declared.NeedsLock(cfg, name, b.Path)
	}), nil
}

// examine returns an entry for each of the stages. Signatures are checked before anything
// is executed. Of what is locked already, a check does not ask.
func (r *lockResult) examine(ctx context.Context, cfg *config.Config, o lockOptions, stages []string, known lockfile.Lock) ([]lockfile.Entry, error) {
	var errs []error
	var found []plugged
	for _, name := range stages {
		p, err := findPlugged(cfg, name, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, what := range p.contents.Uncovered {
			r.Uncovered = append(r.Uncovered, uncovered{name, what})
		}
		found = append(found, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var entries []lockfile.Entry
	for _, p := range found {
		e, err := lockfile.Entry{Stage: p.binary.Name, Platform: declared.Platform, SHA256: p.contents.SHA256}, error(nil)
		if o.check {
			e = p.remembered(e, known)
		} else {
			err = p.describe(ctx, cfg, &e)
		}
		entries, errs = append(entries, e), append(errs, err)
	}
	return entries, errors.Join(errs...)
}

// plugged is the binary of a stage with what it brings.
type plugged struct {
	binary   process.Binary
	contents process.Contents
}

func findPlugged(cfg *config.Config, name string, o lockOptions) (p plugged, err error) {
	if o.binary != "" {
		p.binary, err = declared.NamedBinary(name, o.binary)
	} else {
		p.binary, err = pluginOf(cfg, name)
	}
	if err != nil {
		return p, err
	}
	if p.contents, err = process.ReadContents(p.binary.Path); err != nil || o.key == nil {
		return p, err
	}
	verify := lockfile.VerifyProgram
	if p.contents.Script {
		verify = lockfile.VerifyDigest
	}
	if err := verify(o.key, p.binary.Path, p.binary.Path+process.SignatureSuffix, p.contents.SHA256); err != nil {
		return p, fmt.Errorf("stage %q: %w", name, err)
	}
	return p, nil
}

// remembered returns the entry as the lock has it, if it does.
func (p plugged) remembered(e lockfile.Entry, known lockfile.Lock) lockfile.Entry {
	for _, k := range known.Entries {
		if k.Stage == e.Stage && k.Platform == e.Platform && k.SHA256 == e.SHA256 {
			return k
		}
	}
	return e
}

// describe starts the binary, whose contents must be what they were, and asks it what it is.
func (p plugged) describe(ctx context.Context, cfg *config.Config, e *lockfile.Entry) error {
	unchanged := func(c process.Contents) error {
		if c.SHA256 != e.SHA256 {
			return fmt.Errorf("%s changed meanwhile: its sha256 was %s and is %s", p.binary.Path, e.SHA256, c.SHA256)
		}
		return nil
	}
	return askApproved(ctx, cfg, p.binary, unchanged, func(_ context.Context, running *process.Process) error {
		d := running.Description()
		e.Version, e.Needs = d.GetVersion(), needsOf(d)
		return nil
	})
}

// needsOf returns what a stage declares to need, and has to be granted.
func needsOf(d *stagev1.DescribeResponse) []string { return grants.Of(d.GetNeeds()).Words() }

// lockResult is what "catena lock" prints.
type lockResult struct {
	File      string       `json:"file"`
	Changes   []lockChange `json:"changes"`
	Written   bool         `json:"written"`
	Uncovered []uncovered  `json:"uncovered,omitempty"`
}

// lockChange is a changed entry. Old is nil if it was added, and New if it was removed.
type lockChange struct {
	Stage    string     `json:"stage"`
	Platform string     `json:"platform"`
	Old      *lockState `json:"old,omitempty"`
	New      *lockState `json:"new,omitempty"`
}

// lockState is an entry before or after. Version and Needs are not known in a check of a new file.
type lockState struct {
	Version string   `json:"version,omitempty"`
	SHA256  string   `json:"sha256"`
	Needs   []string `json:"needs,omitempty"`
}

// uncovered is something that a stage runs and its digest does not cover.
type uncovered struct {
	Stage string `json:"stage"`
	What  string `json:"what"`
}

func (r *lockResult) compare(before, after lockfile.Lock) {
	r.Changes = []lockChange{}
	for _, c := range lockfile.Diff(before, after) {
		var change lockChange
		if e := c.Old; e != nil {
			change.Stage, change.Platform, change.Old = e.Stage, e.Platform, &lockState{e.Version, e.SHA256, e.Needs}
		}
		if e := c.New; e != nil {
			change.Stage, change.Platform, change.New = e.Stage, e.Platform, &lockState{e.Version, e.SHA256, e.Needs}
		}
		r.Changes = append(r.Changes, change)
	}
}

func (r *lockResult) print(out io.Writer, format string) error {
	if format == "json" {
		return printJSON(out, r)
	}
	var b strings.Builder
	for _, c := range r.Changes {
		printable.Fprintln(&b, c)
	}
	for _, u := range r.Uncovered {
		printable.Fprintf(&b, "not covered: stage %s also runs %s\n", u.Stage, u.What)
	}
	switch {
	case r.Written:
		printable.Fprintln(&b, r.File, "written")
	case len(r.Changes) > 0:
		printable.Fprintf(&b, "%s is out of date; catena lock would change it\n", r.File)
	default:
		printable.Fprintf(&b, "%s is up to date\n", r.File)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// String returns the change for people.
func (c lockChange) String() string {
	name := c.Stage
	if c.Platform != declared.Platform {
		name += " (" + c.Platform + ")"
	}
	switch {
	case c.Old == nil:
		return fmt.Sprintf("added %s: %s%s", name, c.New, listed("; needs ", c.New.Needs))
	case c.New == nil:
		return fmt.Sprintf("removed %s: %s", name, c.Old)
	}
	text := fmt.Sprintf("changed %s: %s → %s", name, c.Old, c.New)
	return text + listed("; now needs ", without(c.New.Needs, c.Old.Needs)) + listed("; no longer needs ",
		without(c.Old.Needs, c.New.Needs))
}

func (s *lockState) String() string { return strings.TrimSpace(s.Version + " sha256 " + s.SHA256) }

func listed(prefix string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return prefix + strings.Join(items, ", ")
}

func without(items, others []string) []string {
	return slices.DeleteFunc(slices.Clone(items), func(s string) bool { return slices.Contains(others, s) })
}
