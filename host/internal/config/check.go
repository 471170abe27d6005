package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/claim"
)

// The checks of single values. Each gets a value of the key's type.

func notEmpty(v any) error {
	if v == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func noNUL(v any) error {
	if s, _ := v.(string); strings.ContainsRune(s, 0) {
		return errors.New("must not hold a NUL byte")
	}
	return nil
}

func notNegative(v any) error {
	i, _ := v.(int64)
	d, _ := v.(time.Duration)
	if i < 0 || d < 0 {
		return fmt.Errorf("must not be negative, is %v", v)
	}
	return nil
}

func positive(v any) error {
	i, _ := v.(int64)
	d, _ := v.(time.Duration)
	if i <= 0 && d <= 0 {
		return fmt.Errorf("must be more than 0, is %v", v)
	}
	return nil
}

func digest(v any) error {
	s, _ := v.(string)
	if b, err := hex.DecodeString(s); s != "" && (err != nil || len(b) != 32) {
		return fmt.Errorf("want 64 hexadecimal digits, have %q", s)
	}
	return nil
}

func endpoints(v any) error {
	list, _ := v.([]string)
	var errs []error
	for _, endpoint := range list {
		u, err := url.Parse(endpoint)
		if err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") {
			continue
		}
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Port() == "" {
			errs = append(errs, fmt.Errorf("%q is not a URL of the form https://HOST:PORT or unix:///PATH", endpoint))
		}
	}
	return errors.Join(errs...)
}

func claims(v any) error {
	list, _ := v.([]string)
	var errs []error
	for _, text := range list {
		_, err := claim.Parse(text)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// The rules for names that the user chooses.

// hostName is the name of the host where there are those of stages, as in catena logs.
const hostName = "host"

// maxStageName keeps the paths of a stage's sockets short.
const maxStageName = 28

func stageName(name string) error {
	if len(name) > maxStageName {
		return fmt.Errorf("the name of a stage has at most %d characters", maxStageName)
	}
	if !isWord(name) {
		return errors.New("the name of a stage has lower case letters, digits and inner dashes only")
	}
	if name == hostName {
		return errors.New("the host itself has this name in its logs: call the stage something else")
	}
	return nil
}

func flagName(name string) error {
	if isWord(name) {
		return nil
	}
	meant := strings.ToLower(strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-"))
	if isWord(meant) {
		return fmt.Errorf("not the name of a flag (did you mean %q?)", meant)
	}
	return errors.New("not the name of a flag")
}

// isWord reports whether s has lower case letters, digits and dashes inside only.
func isWord(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func variableName(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return errors.New("not the name of an environment variable")
	case strings.HasPrefix(name, "CATENA_STAGE_"), strings.HasPrefix(name, "PLUGIN_"):
		return errors.New("the host sets this variable itself")
	case strings.HasPrefix(name, "LD_"), strings.HasPrefix(name, "DYLD_"):
		return errors.New("the dynamic loader would run other code than that of the binary")
	}
	return nil
}
