package schema

import (
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	s, err := ParseSecrets(`{
  "properties": {
    "greeting": {"type": "string"},
    "password": {"type": "string", "writeOnly": true},
    "token": {"type": "string", "format": "password"},
    "database": {"$ref": "#/$defs/database"},
    "all": {"writeOnly": true, "properties": {"user": {"type": "string"}}},
    "users": {"type": "array", "items": {"properties": {"name": {}, "key": {"writeOnly": true}}}},
    "names": {"type": "array", "items": {"type": "string"}},
    "headers": {"additionalProperties": {"writeOnly": true}},
    "either": {"oneOf": [{"type": "string"}, {"type": "string", "writeOnly": true}]},
    "tree": {"$ref": "#/$defs/node"}
  },
  "$defs": {
    "database": {"properties": {"host": {}, "password": {"writeOnly": true}}},
    "node": {"properties": {"name": {}, "next": {"$ref": "#/$defs/node"}}}
  }
}`)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"greeting": false, "password": true, "token": true, "database.host": false, "database.password": true, "all.user": true,
		"users": true, "names": false, "headers.Authorization": true, "either": true, "tree.next.next.name": false, "unknown": false, "unknown.key": false,
	} {
		if got := s.Hide(strings.Split(key, ".")); got != want {
			t.Errorf("%s: %t", key, got)
		}
	}
	for _, text := range []string{`{"$ref": "#"}`, `{"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}`, `{"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}, "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}`} {
		s, err := ParseSecrets(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Hide([]string{"a", "b"}) // which comes to an end
		s.Hide(nil)
	}
	if s, err := ParseSecrets(""); err != nil || s.Hide([]string{"password"}) {
		t.Errorf("no schema: %v", err)
	}
	if _, err := ParseSecrets("nonsense"); err == nil {
		t.Error("nonsense is a schema")
	}
}

// What is wrong with a secret is said without its value.
func TestCheckKeepsSecrets(t *testing.T) {
	t.Parallel()
	got, err := Check(t.Context(), `{"properties": {"password": {"type": "string", "writeOnly": true, "pattern": "^x"}}}`, map[string]any{"password": "hunter2"})
	if err != nil || len(got) != 1 || got[0].Key != "password" || strings.Contains(got[0].Message, "hunter2") {
		t.Errorf("got %+v, %v", got, err)
	}
}
