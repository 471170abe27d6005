// Package klogr sends what Kubernetes' packages log with klog to an hclog
// logger, so that a program has one log in one format.
package klogr

import (
	"bytes"
	"flag"
	"fmt"
	"sync/atomic"

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
// klog has one logger per process, so the latest call counts. What is logged before the
// first goes to hclog's default logger.
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
	installed.Store(&log)
	return nil
}

// installed is the logger of Install. klog's own must not be set while it is in use, and
// gRPC uses it in all goroutines from the start on: so that is set once, before there are
// any, and leads here.
var installed atomic.Pointer[hclog.Logger]

func init() {
	klog.SetLoggerWithOptions(logr.New(&sink{log: current}),
		klog.ContextualLogger(true),
		klog.WriteKlogBuffer(func(line []byte) { writeLine(current(), line) }))
}

func current() hclog.Logger {
	if log := installed.Load(); log != nil {
		return *log
	}
	return hclog.Default()
}

// New returns a sink that logs to log at klog's verbosity.
func New(log hclog.Logger) logr.LogSink { return &sink{log: func() hclog.Logger { return log }} }

// writeLine logs what klog.Infof and its like have formatted: a header, then the message.
// It is the only way to keep the severity Warning, which a logr.LogSink does not have.
func writeLine(log hclog.Logger, line []byte) {
	header, text, found := bytes.Cut(line, []byte("] "))
	if !found {
		header, text = nil, line
	}
	level, message := severity(header), string(bytes.TrimSpace(text))
	if level > hclog.Info {
		level = lowered(level, sourceOf(header), message, nil)
	}
	message, args := oneLine(message, nil)
	log.Log(level, message, args...)
}

// severity returns the level for a header, which begins with the severity's letter.
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

// sourceOf returns the file in a header, which ends with " FILE:LINE".
func sourceOf(header []byte) string {
	place := header[bytes.LastIndexByte(header, ' ')+1:]
	file, _, _ := bytes.Cut(place, []byte(":"))
	return string(file)
}
