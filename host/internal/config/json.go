package config

import (
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxExact is where a float64 begins to skip whole numbers.
const maxExact = 1 << 53

// parseJSON returns the value that s is as JSON: nil, a bool, string, int64, float64,
// []any or map[string]any. It returns nil for what is no JSON, and for numbers that
// would lose digits.
func parseJSON(s string) any {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil
	}
	v, ok := exactNumbers(v)
	if !ok {
		return nil
	}
	return v
}

// exactNumbers replaces each json.Number; it fails if one would lose digits.
func exactNumbers(v any) (any, bool) {
	ok := true
	switch v := v.(type) {
	case json.Number:
		return exactNumber(v)
	case []any:
		for i := 0; i < len(v) && ok; i++ {
			v[i], ok = exactNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			if v[name], ok = exactNumbers(v[name]); !ok {
				break
			}
		}
	}
	return v, ok
}

func exactNumber(n json.Number) (any, bool) {
	if i, err := n.Int64(); err == nil {
		return i, true
	}
	f, err := n.Float64()
	return wholeNumbers(f), err == nil && strings.ContainsAny(n.String(), ".eE")
}

// wholeNumbers makes integers of the numbers of a JSON file that are whole, so that
// they are the same in every format.
func wholeNumbers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < maxExact {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = wholeNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = wholeNumbers(v[name])
		}
	}
	return v
}

// losesDigits reports whether a whole number is more than a float64 can hold.
func losesDigits(n json.Number) bool {
	if strings.ContainsAny(n.String(), ".eE") {
		return false
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	return err != nil || i >= maxExact || i <= -maxExact
}
