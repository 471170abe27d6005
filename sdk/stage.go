package sdk

import (
	"errors"
	"net/http"
	"runtime/debug"

	"go.opentelemetry.io/otel/trace"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Stage is what the author of a stage provides. Only Name and New are required.
type Stage struct {
	// Name is the NAME of the binary, catena-stage-NAME.
	Name string
	// Version is shown to people. It is the version of the main module if empty.
	Version string
	// Summary is one line that says what the stage does.
	Summary string
	// Config is a struct, of the type of the stage's own configuration, that holds
	// the defaults. From it come the JSON schema that the host shows, the check before
	// the start and what Env.Config begins with. A field has the name of its json tag and
	// the description of its jsonschema tag; the tag secret:"true" keeps its value from being
	// shown. A method Validate() error judges what the
	// schema cannot; it should join a ConfigProblem for each key.
	// struct{}{} means that there is nothing to configure, nil that any value is accepted.
	Config any
	// ConfigSchema is the JSON schema, if it is not to be derived from Config.
	ConfigSchema string
	// Needs is what the stage needs from its operator. nil says nothing: the stage can do
	// what it is granted.
	Needs *Needs
	// Kubernetes, if not nil, says which release of Kubernetes the stage serves.
	Kubernetes func() Kubernetes
	// New builds the stage's handler, once. A nil handler declines every request.
	// An error ends the start of the server; so does a panic.
	New func(env *Env) (http.Handler, error)
	// Validate checks a configuration, which is JSON (see DecodeConfig), and the
	// API server's flags, each as name=value, after Config has been used to check it. It
	// must have no side effect. If both are nil, wrong configurations are found when
	// New is called.
	Validate func(config []byte, flags []string) []ConfigProblem
	// RestOnOneProcessor sets GOMAXPROCS to 1 while the process is idle, which takes a fifth less of the processors,
	// and back when it has work: some 20 ms of processor time without a pause (on Linux, where SIGVTALRM is used for
	// that), or 5 % of a processor in five seconds. Kubernetes' stages do. With GOMAXPROCS in the environment, or
	// set by the program to more than one, it does nothing.
	RestOnOneProcessor bool
	// Tracing returns the provider of Env.Tracer; package tracing has one that exports
	// where the server does. It is called before New. Without it, or if it returns nil,
	// spans are passed on and not exported.
	Tracing func(env *Env) (trace.TracerProvider, error)
}

// ConfigProblem is what is wrong with one key of a configuration.
type ConfigProblem struct {
	// Key is the dotted path of the key inside the stage's configuration, or
	// the name of a flag.
	Key     string
	Message string
}

func (s Stage) check() error {
	switch {
	case s.Name == "":
		return errors.New("stage without a name")
	case s.New == nil:
		return errors.New("stage without a constructor: Stage.New is nil")
	}
	return s.checkConfig()
}

const sdkModule = "github.com/catena-dev/catena"

func (s Stage) describe() *stagev1.DescribeResponse {
	schema, _ := s.configSchema() // check reports the error
	d := &stagev1.DescribeResponse{
		Name:         s.Name,
		Version:      s.Version,
		Sdk:          "go",
		ConfigSchema: schema,
		Summary:      s.Summary,
		Standby:      true,
		Needs:        s.Needs.toWire(),
		// package httpserver does
		DiscardsBodies: true,
	}
	if s.Kubernetes != nil {
		d.Kubernetes = s.Kubernetes().toWire()
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return d
	}
	if d.Version == "" {
		d.Version = info.Main.Version
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == sdkModule {
			d.Sdk = "go " + m.Version
		}
	}
	return d
}
