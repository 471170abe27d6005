package sdk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeConfig(t *testing.T) {
	t.Parallel()
	type nested struct {
		Size int `json:"size"`
	}
	type config struct {
		Name   string            `json:"name"`
		Nested nested            `json:"nested"`
		Labels map[string]string `json:"labels"`
	}
	defaults := config{Name: "default", Nested: nested{Size: 7}}
	for _, tc := range []struct {
		text string
		want config
		err  string
	}{
		{text: "", want: defaults},
		{text: " ", want: defaults},
		{text: "null", want: defaults},
		{text: "{}", want: defaults},
		{text: `{"name":"x"}`, want: config{Name: "x", Nested: nested{Size: 7}}},
		{text: `{"nested":{"size":1},"labels":{"a":"b"}}`, want: config{Name: "default", Nested: nested{Size: 1}, Labels: map[string]string{"a": "b"}}},
		{text: `{"nmae":"x"}`, err: `unknown key "nmae"`},
		{text: `{"nested":{"sise":1}}`, err: `unknown key "sise"`},
		{text: `{"nested":{"size":"1"}}`, err: `key "nested.size": want int, got string`},
		{text: `{"name":1}`, err: `key "name": want string, got number`},
		{text: `[]`, err: "want an object, got array"},
		{text: `{} {}`, err: "more than one JSON value"},
		{text: `{`, err: "unexpected EOF"},
	} {
		got := defaults
		err := DecodeConfig([]byte(tc.text), &got)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %s", tc.text, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", tc.text, err, diff)
		}
	}
}
