package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// DecodeConfig decodes a stage's configuration, which is JSON, into what into points
// to. Unknown keys are errors. Keys that are absent leave what into holds, so that
// defaults can be set before.
func DecodeConfig(config []byte, into any) error {
	if len(bytes.TrimSpace(config)) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return configError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// configError says in an operator's words what encoding/json says in a programmer's.
func configError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("want an object, got %s", wrong.Value)
		}
		return fmt.Errorf("key %q: want %s, got %s", wrong.Field, wrong.Type, wrong.Value)
	}
	if key, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown key %s", key)
	}
	return err
}
