package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/suggest"
)

// convert converts a value to the Go type of its key: string, []string, int64, bool,
// time.Duration or map[string]any. With text, strings are read as that type.
func convert(k *Key, raw any, text bool) (any, error) {
	if m, ok := raw.(map[string]any); ok && k.Type != Object {
		switch {
		case text:
			return nil, errors.New("has no keys below it")
		case k.Type == Flag:
			return nil, fmt.Errorf("%w; NAME=VALUE is one value", wrongType(k.Type, m))
		}
		return nil, wrongType(k.Type, m)
	}
	switch k.Type {
	case String:
		return convertString(k, raw)
	case List:
		return convertList(raw, text)
	case Integer:
		return convertInteger(raw, text)
	case Bool:
		return convertBool(raw, text)
	case Duration:
		return convertDuration(raw)
	case Quantity:
		return convertQuantity(raw)
	case Flag:
		return convertFlag(raw, text)
	case Text:
		return convertScalar(raw)
	default:
		return convertObject(raw, text)
	}
}

func wrongType(want Type, have any) error {
	article := "a"
	if strings.Contains("aeiou", string(want)[:1]) {
		article = "an"
	}
	return fmt.Errorf("want %s %s, have %s", article, want, describe(have))
}

func convertString(k *Key, raw any) (any, error) {
	s, _ := raw.(string)
	switch raw.(type) {
	case string:
	case bool, int, int64, uint64, float64, time.Time:
		return nil, fmt.Errorf("%w: put it in quotes", wrongType(String, raw))
	default:
		return nil, wrongType(String, raw)
	}
	if len(k.Choices) > 0 && !slices.Contains(k.Choices, s) {
		return nil, fmt.Errorf("want %s, have %q%s", strings.Join(k.Choices, ", "), s, suggest.DidYouMean(s, k.Choices))
	}
	return s, nil
}

func convertList(raw any, text bool) (any, error) {
	if s, ok := raw.(string); ok && text {
		if list, ok := parseJSON(s).([]any); ok {
			raw = list
		} else {
			return splitList(s)
		}
	}
	list, ok := raw.([]any)
	if !ok {
		return nil, wrongType(List, raw)
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, ok := item.(string)
		switch {
		case !ok:
			return nil, fmt.Errorf("want a list of strings, have %s in it", describe(item))
		case s == "":
			return nil, errors.New("must not have an empty element")
		}
		out = append(out, s)
	}
	return out, nil
}

func splitList(s string) (any, error) {
	out := []string{}
	if strings.TrimSpace(s) == "" {
		return out, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return nil, fmt.Errorf("must not have an empty element, is %q", s)
		}
		out = append(out, item)
	}
	return out, nil
}

func convertInteger(raw any, text bool) (any, error) {
	switch v := raw.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case string:
		if i, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil && text {
			return i, nil
		}
	}
	return nil, wrongType(Integer, raw)
}

func convertBool(raw any, text bool) (any, error) {
	if b, ok := raw.(bool); ok {
		return b, nil
	}
	if s, _ := raw.(string); text && (s == "true" || s == "false") {
		return s == "true", nil
	}
	return nil, fmt.Errorf("want true or false, have %s", describe(raw))
}

func convertDuration(raw any) (any, error) {
	if s, ok := raw.(string); ok {
		if d, err := time.ParseDuration(s); err == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("want a duration such as 90s or 1h30m, have %s", describe(raw))
}

// convertQuantity returns the quantity as it is written. Its value is for the key's check.
func convertQuantity(raw any) (any, error) {
	switch v := raw.(type) {
	case string:
		return strings.TrimSpace(v), nil
	case int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return nil, fmt.Errorf("want a quantity such as 512Mi, 1.5 or 500m, have %s", describe(raw))
}

// convertFlag returns one string for each use of the flag. A text is one use,
// commas included, as on the command line of kube-apiserver.
func convertFlag(raw any, text bool) (any, error) {
	if s, ok := raw.(string); ok && text {
		if list, ok := parseJSON(s).([]any); ok {
			raw = list
		}
	}
	list, ok := raw.([]any)
	if !ok {
		list = []any{raw}
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, err := convertScalar(item)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// convertScalar takes for a string what a person writes for one. It refuses numbers
// with a fraction: 1.30 would have become 1.3.
func convertScalar(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		return "", fmt.Errorf("the number %v may have lost digits: put it in quotes", v)
	}
	return "", fmt.Errorf("want a string, a number or a boolean, have %s", describe(raw))
}

func convertObject(raw any, text bool) (any, error) {
	if s, ok := raw.(string); ok && text {
		raw, text = parseJSON(s), false
		if _, ok := raw.(map[string]any); !ok {
			return nil, fmt.Errorf("want a mapping as JSON, have %q", s)
		}
	}
	m, ok := raw.(map[string]any)
	if !ok {
		return nil, wrongType(Object, raw)
	}
	return convertAny(m, text)
}

// convertAny checks that a value of a stage's own configuration can be handed on
// as JSON. With text, strings that are JSON stand for what they are in JSON.
func convertAny(raw any, text bool) (any, error) {
	switch v := raw.(type) {
	case nil, bool, int, int64, uint64:
		return v, nil
	case string:
		if parsed := parseJSON(v); text && (parsed != nil || v == "null") {
			return parsed, nil
		}
		return v, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("has the number %v, which JSON does not have", v)
		}
		return v, nil
	case []any:
		return convertItems(v, text)
	case map[string]any:
		return convertMembers(v, text)
	case map[any]any:
		named := make(map[string]any, len(v))
		for name, member := range v {
			named[fmt.Sprint(name)] = member
		}
		return convertMembers(named, text)
	}
	return nil, fmt.Errorf("has %s: put it in quotes", describe(raw))
}

func convertItems(list []any, text bool) (any, error) {
	out := make([]any, len(list))
	var errs []error
	for i, item := range list {
		v, err := convertAny(item, text)
		if err != nil {
			errs = append(errs, err)
		}
		out[i] = v
	}
	return out, errors.Join(errs...)
}

func convertMembers(m map[string]any, text bool) (any, error) {
	out := make(map[string]any, len(m))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v, err := convertAny(m[name], text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		out[name] = v
	}
	return out, errors.Join(errs...)
}

// describe names a value in an error.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool:
		return fmt.Sprintf("the boolean %t", v)
	case int, int64, uint64, float64:
		return fmt.Sprintf("the number %v", v)
	case []any:
		return "a list"
	case map[string]any, map[any]any:
		return "a mapping"
	case time.Time:
		return "a date"
	}
	return fmt.Sprintf("a date or time (%v)", v)
}
