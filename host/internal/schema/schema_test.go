package schema

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const text = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["greeting"],
  "properties": {
    "greeting": {"type": "string", "minLength": 2},
    "level": {"enum": ["low", "high"]},
    "count": {"type": "integer", "minimum": 1, "maximum": 100},
    "maybe": {"type": ["null", "array"]},
    "either": {"type": ["string", "integer"]},
    "tags": {"type": "array", "items": {"type": "string"}},
    "limits": {"type": "object", "additionalProperties": {"type": "number"}},
    "tree": {"$ref": "#/$defs/node"}
  },
  "anyOf": [{"required": ["greeting"]}, {"required": ["level"]}],
  "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}, "additionalProperties": false}}
}`

func TestCheck(t *testing.T) {
	t.Parallel()
	type config = map[string]any
	for name, tc := range map[string]struct {
		config config
		want   []Problem
	}{
		"good": {config{"greeting": "hi", "count": 2, "tags": []string{"a"}, "limits": config{"x": 1.5}, "level": "low", "either": 1}, nil},
		"none": {nil, []Problem{{"greeting", "is required"}}},
		"null": {config{"greeting": "hi", "count": nil}, nil},
		"all at once": {config{"greting": "hi", "count": "two", "tags": []any{"a", 1}}, []Problem{
			{"greeting", "is required"},
			{"count", "want integer, got string"},
			{"greting", `unknown key (did you mean "greeting"?)`},
			{"tags[1]", "want string, got integer"},
		}},
		"two types":  {config{"greeting": "hi", "either": true}, []Problem{{"either", "want string or integer, got boolean"}}},
		"optional":   {config{"greeting": "hi", "maybe": 1}, []Problem{{"maybe", "want array, got integer"}}},
		"enum":       {config{"greeting": "hi", "level": "mid"}, []Problem{{"level", "enum: mid does not equal any of: [low high]"}}},
		"minimum":    {config{"greeting": "hi", "count": 0}, []Problem{{"count", "must be at least 1"}}},
		"maximum":    {config{"greeting": "hi", "count": 101}, []Problem{{"count", "must be at most 100"}}},
		"additional": {config{"greeting": "hi", "limits": config{"x": "1"}}, []Problem{{"limits.x", "want number, got string"}}},
		"reference":  {config{"greeting": "hi", "tree": config{"next": config{"nam": "x"}}}, []Problem{{"tree.next.nam", `unknown key (did you mean "name"?)`}}},
	} {
		got, err := Check(t.Context(), text, tc.config)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A schema that refers to itself is not followed for ever.
func TestCheckReferenceToItself(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"$ref": "#"}`, `{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}`, `{"\u0024ref": "#"}`, `{"allOf": [{"$ref": "#"}]}`} {
		if got, err := Check(t.Context(), text, map[string]any{"x": map[string]any{"x": 1}}); err != nil || got != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// What the walk does not look at is found all the same.
func TestCheckWhole(t *testing.T) {
	t.Parallel()
	got, err := Check(t.Context(), `{"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}`, map[string]any{"a": 1, "b": 2})
	if err != nil || len(got) != 1 || !strings.Contains(got[0].Message, "oneOf") {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestBadSchema(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"nonsense", `{"type": 7}`, `{"type":"objekt"}`, `{"items":{"type":["string","text"]}}`, `{"properties":{"type":{"type":"int"}}}`, `{"required":"a"}`, `{"$ref": "#/$defs/none"}`, `{"pattern": "("}`, `[]`} {
		if got, err := Check(t.Context(), text, nil); err == nil || !strings.Contains(err.Error(), "is no JSON schema") {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if _, err := Check(t.Context(), `{"type":"objekt"}`, nil); err == nil || !strings.Contains(err.Error(), `/type: there is no type "objekt" (did you mean "object"?)`) {
		t.Error(err)
	}
	for _, text := range []string{
		`{"properties":{"type":{"type":"string"},"properties":{"type":"integer"}}}`, `{"enum":[{"type":"any"}]}`, `{"default":{"type":"any"}}`, `{"anyOf":[{"type":["null","object"]}]}`,
	} {
		if _, err := Check(t.Context(), text, nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got, err := Check(t.Context(), "", map[string]any{"a": 1}); err != nil || got != nil {
		t.Errorf("no schema: %v, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	err := Errors("hello", []Problem{{"a.b", "is wrong"}, {"", "is odd"}})
	want := "stages.hello.config.a.b: is wrong (says stage \"hello\")\nstages.hello.config: is odd (says stage \"hello\")"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if err := Errors("hello", nil); err != nil {
		t.Error(err)
	}
}
