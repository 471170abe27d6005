// Package klogr sends what Kubernetes' packages log with klog to an hclog
// logger, so that a program has one log in one format.
package klogr

import (
	"bytes"
	"flag"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	"k8s.io/klog/v2"
)

// Install makes klog write to log: severities become levels, keys and values
// stay keys and values. What is logged at a verbosity that klog lets pass is
// logged at level Info whatever the verbosity, because verbosity is klog's to
// decide: by the flags --v and --vmodule, whose values are given here ("" leaves
// them as they are), and by /debug/flags/v.
//
// klog has one logger per process. Install is to be called once, before anything
// logs.
func Install(log hclog.Logger, verbosity, vmodule string) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for _, f := range []struct{ name, value string }{{"v", verbosity}, {"vmodule", vmodule}} {
		if f.value == "" {
			continue
		}
		if err := flags.Set(f.name, f.value); err != nil {
			return fmt.Errorf("log flag %s: %w", f.name, err)
		}
	}
	klog.SetLoggerWithOptions(logr.New(New(log)),
		klog.ContextualLogger(true),
		klog.WriteKlogBuffer(func(line []byte) { writeLine(log, line) }))
	return nil
}

// New returns a sink that logs to log at klog's verbosity.
func New(log hclog.Logger) logr.LogSink { return &sink{log: log} }

// writeLine logs what klog.Infof and its like have formatted: a header that
// begins with the severity's letter and ends with a closing bracket, then the
// message. It is the only way to keep the severity Warning, which a logr.LogSink
// does not have.
func writeLine(log hclog.Logger, line []byte) {
	header, message, found := bytes.Cut(line, []byte("] "))
	if !found {
		header, message = nil, line
	}
	log.Log(severity(header), string(bytes.TrimSpace(message)))
}

func severity(header []byte) hclog.Level {
	if len(header) == 0 {
		return hclog.Info
	}
	switch header[0] {
	case 'W':
		return hclog.Warn
	case 'E', 'F':
		return hclog.Error
	default:
		return hclog.Info
	}
}
