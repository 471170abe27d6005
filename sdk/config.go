package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// DecodeConfig decodes a stage's configuration, which is JSON, into what into points
// to. Unknown keys are errors. Keys that are absent or null leave what into holds, so that
// defaults can be set before. The error joins a ConfigProblem for each key that is wrong.
// If into has a method Validate() error, the result has to pass it.
func DecodeConfig(config []byte, into any) error {
	if len(bytes.TrimSpace(config)) == 0 {
		config = []byte("null")
	}
	dec := json.NewDecoder(bytes.NewReader(config))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	var c configChecker
	c.check("", raw, reflect.TypeOf(into))
	if err := errors.Join(c.problems...); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return err
	}
	if v, ok := into.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// Error implements error, for the method Validate of a configuration.
func (p ConfigProblem) Error() string {
	if p.Key == "" {
		return p.Message
	}
	return p.Key + ": " + p.Message
}

// joinProblems returns the message of Configure about a configuration with problems.
func joinProblems(problems []ConfigProblem) string {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.Error()
	}
	return strings.Join(all, "; ")
}

// problemsOf returns the problems that err joins. Other errors become problems without a
// key.
func problemsOf(err error) []ConfigProblem {
	if err == nil {
		return nil
	}
	if p, ok := err.(ConfigProblem); ok {
		return []ConfigProblem{p}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []ConfigProblem
		for _, e := range joined.Unwrap() {
			all = append(all, problemsOf(e)...)
		}
		return all
	}
	return []ConfigProblem{{Message: err.Error()}}
}

// validate checks a configuration against the type of Stage.Config.
func (s Stage) validate(config []byte) []ConfigProblem {
	if s.Config == nil {
		return nil
	}
	into, err := defaultsOf(s.Config)
	if err != nil {
		return problemsOf(err)
	}
	return problemsOf(DecodeConfig(config, into.Interface()))
}

// defaultsOf returns a pointer to a copy of a configuration, which may be a pointer
// itself.
func defaultsOf(config any) (reflect.Value, error) {
	v := reflect.Indirect(reflect.ValueOf(config))
	if !v.IsValid() {
		return reflect.Value{}, fmt.Errorf("the defaults are a nil %T", config)
	}
	text, err := json.Marshal(config)
	if err != nil {
		return reflect.Value{}, fmt.Errorf("the defaults: %w", err)
	}
	copied := reflect.New(v.Type())
	if err := json.Unmarshal(text, copied.Interface()); err != nil {
		return reflect.Value{}, fmt.Errorf("the defaults: %w", err)
	}
	return copied, nil
}

// setDefaults sets what into points to, if that is of the type of the defaults and zero.
func setDefaults(defaults, into any) error {
	if defaults == nil {
		return nil
	}
	to := reflect.ValueOf(into)
	if to.Kind() != reflect.Pointer || to.IsNil() || !to.Elem().IsZero() {
		return nil
	}
	from, err := defaultsOf(defaults)
	if err == nil && from.Type() == to.Type() {
		to.Elem().Set(from.Elem())
	}
	return err
}

// Duration is a time.Duration that is written as in Go, such as 1m30s, in a
// configuration.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("want a duration such as 1m30s, got %q", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns the duration as in Go.
func (d Duration) String() string { return time.Duration(d).String() }
