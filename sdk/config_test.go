package sdk

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/jsonschema-go/jsonschema"
)

type nested struct {
	Size int `json:"size" jsonschema:"how large it is"`
}

type decoded struct {
	Name   string            `json:"name"`
	Nested nested            `json:"nested"`
	Labels map[string]string `json:"labels"`
	Wait   Duration          `json:"wait,omitempty"`
	Nets   []netip.Prefix    `json:"nets"`
	Limit  uint8             `json:"limit"`
}

func (d *decoded) Validate() error {
	if d.Limit == 13 {
		return ConfigProblem{Key: "limit", Message: "unlucky"}
	}
	return nil
}

func TestDecodeConfig(t *testing.T) {
	t.Parallel()
	type config = decoded
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
		{text: `{"name":null,"nested":null}`, want: defaults},
		{text: `{"nmae":"x"}`, err: `nmae: unknown key (known: labels, limit, name, nested, nets, wait)`},
		{text: `{"Name":"x"}`, err: `Name: unknown key, did you mean "name"?`},
		{text: `{"nested":{"sise":1}}`, err: `nested.sise: unknown key`},
		{text: `{"nested":{"size":"1"}}`, err: `nested.size: want int, got string`},
		{text: `{"name":1,"wait":"soon","labels":{"a":1}}`, err: "labels.a: want string, got number\nname: want string, got number\nwait: want a duration such as 1m30s, got \"soon\""},
		{text: `{"wait":3}`, err: "wait: want string, got number"},
		{text: `{"nets":["10.0.0.0/8","x"]}`, err: "nets[1]: "},
		{text: `{"nets":"10.0.0.0/8"}`, err: "nets: want a list, got string"},
		{text: `{"nested":[]}`, err: "nested: want an object, got list"},
		{text: `{"limit":300}`, err: "limit: want uint8, got number 300"},
		{text: `{"limit":-1}`, err: "limit: want uint8, got number -1"},
		{text: `{"limit":13}`, err: "limit: unlucky"},
		{text: `[]`, err: "want an object, got list"},
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
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Prefix{})); err != nil || diff != "" {
			t.Errorf("%s: %v %s", tc.text, err, diff)
		}
	}
}

// The defaults of Stage.Config are what a stage begins with, and no stage changes them.
func TestDefaults(t *testing.T) {
	t.Parallel()
	defaults := decoded{Name: "default", Labels: map[string]string{"a": "1"}, Wait: Duration(time.Minute)}
	env := &Env{Name: "test", defaults: defaults, config: json.RawMessage(`{"labels":{"b":"2"}}`)}
	for range 2 {
		var got decoded
		if err := env.Config(&got); err != nil {
			t.Fatal(err)
		}
		want := decoded{Name: "default", Labels: map[string]string{"a": "1", "b": "2"}, Wait: Duration(time.Minute)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	preset := decoded{Name: "preset"}
	if err := env.Config(&preset); err != nil || preset.Wait != 0 {
		t.Errorf("what is preset stays: %v, %v", preset, err)
	}
	var other struct{ Labels map[string]string }
	if err := env.Config(&other); err != nil || len(other.Labels) != 1 {
		t.Errorf("another type has no defaults: %v, %v", other, err)
	}
	if len(defaults.Labels) != 1 {
		t.Errorf("the defaults have changed: %v", defaults)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	stage := Stage{Config: &decoded{Limit: 13}}
	got := stage.validate([]byte(`{"nmae":1,"nested":{"size":"x"}}`))
	want := []ConfigProblem{
		{Key: "nested.size", Message: "want int, got string"},
		{Key: "nmae", Message: "unknown key (known: labels, limit, name, nested, nets, wait)"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := stage.validate(nil); len(got) != 1 || got[0].Key != "limit" {
		t.Errorf("Validate was not asked: %v", got)
	}
	plain := problemsOf(errors.Join(errors.New("a"), ConfigProblem{Key: "k", Message: "b"}))
	if diff := cmp.Diff([]ConfigProblem{{Message: "a"}, {Key: "k", Message: "b"}}, plain); diff != "" {
		t.Error(diff)
	}
}

// The schema that is derived takes what DecodeConfig takes, and nothing else.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	text, err := Stage{Config: decoded{Name: "n", Wait: Duration(time.Minute), Nested: nested{Size: 3}}}.configSchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"wait":{"type":"string","default":"1m0s"}`, `"size":{"type":"integer","description":"how large it is","default":3}`,
		`"items":{"type":"string"}`, `"additionalProperties":false`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		`{}`: true, `{"wait":"3s","nets":["10.0.0.0/8"],"limit":3,"labels":{"a":"b"}}`: true,
		`{"nmae":1}`: false, `{"nested":{"size":"x"}}`: false, `{"limit":300}`: false, `{"nets":[3]}`: false,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(value); (err == nil) != ok {
			t.Errorf("schema: %s: %v", text, err)
		}
		if err := DecodeConfig([]byte(text), &decoded{}); (err == nil) != ok {
			t.Errorf("DecodeConfig: %s: %v", text, err)
		}
	}
	for _, wrong := range []any{3, (*decoded)(nil), struct{ F func() }{}} {
		if err := (Stage{Name: "x", New: nil, Config: wrong}).checkConfig(); err == nil {
			t.Errorf("%T is no configuration", wrong)
		}
	}
	if text, err := (Stage{Config: struct{}{}}).configSchema(); err != nil || !strings.Contains(text, `"additionalProperties":false`) {
		t.Errorf("%s, %v", text, err)
	}
}

// A tag marks what is not to be shown, at any depth, and its default is not in the schema.
func TestSecretsInTheSchema(t *testing.T) {
	t.Parallel()
	type login struct {
		User     string `json:"user"`
		Password string `json:"password" secret:"true"`
	}
	type config struct {
		login
		Token Duration         `json:"token" secret:"true"`
		Plain Duration         `json:"plain"`
		List  []login          `json:"list"`
		Map   map[string]login `json:"map"`
		Inner *login           `json:"inner"`
		Whole login            `json:"whole" secret:"true"`
	}
	defaults := config{login: login{"ada", "default"}, Token: 1, Whole: login{"bob", "default"}}
	text, err := Stage{Config: defaults}.configSchema()
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	p := schema.Properties
	for name, c := range map[string]struct {
		property *jsonschema.Schema
		want     bool
	}{
		"user": {p["user"], false}, "password": {p["password"], true}, "token": {p["token"], true}, "plain": {p["plain"], false},
		"list": {p["list"], false}, "list.password": {p["list"].Items.Properties["password"], true}, "list.user": {p["list"].Items.Properties["user"], false},
		"map.password": {p["map"].AdditionalProperties.Properties["password"], true}, "inner.password": {p["inner"].Properties["password"], true},
		"whole": {p["whole"], true},
	} {
		if c.property == nil || c.property.WriteOnly != c.want {
			t.Errorf("%s: %+v in %s", name, c.property, text)
		}
	}
	if strings.Contains(text, `"default":"default"`) || strings.Contains(text, "bob") || !strings.Contains(text, `"default":"ada"`) {
		t.Errorf("defaults in %s", text)
	}
}
