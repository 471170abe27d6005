package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// profile is a directory of testdata: flags for both servers, and cases, which are run
// in the order of the file names and of the files.
type profile struct {
	flags map[string]string
	files []caseFile
}

type caseFile struct {
	name  string
	cases []testCase
}

// testCase is one request, sent to both servers. See testdata/README.md.
type testCase struct {
	Name string `json:"name"`
	// Request is "METHOD TARGET". The target is sent as it is written.
	Request string `json:"request,omitempty"`
	// Raw is sent instead of Request, with each line end turned into CR LF.
	Raw string `json:"raw,omitempty"`
	// As is a user of the token file, or "anonymous"; admin by default.
	As      string            `json:"as,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as text, Base64 as the bytes that it encodes, and Object in the
	// format of the Content-Type, which is JSON by default.
	Body   string `json:"body,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	Object any    `json:"object,omitempty"`
	// Padding appends that many spaces to the body.
	Padding int `json:"padding,omitempty"`
	// During is a request that is in flight at the same time: its body is withheld.
	During *heldRequest `json:"during,omitempty"`
	// Meanwhile is sent after the head of the response has come and before its body is read.
	Meanwhile *testCase `json:"meanwhile,omitempty"`
	// HTTP1 uses HTTP/1.1 instead of HTTP/2.
	HTTP1 bool `json:"http1,omitempty"`
	// Want is the status of kube-apiserver, so that a case tests what it means to test;
	// 0 if it closes the connection.
	Want *int `json:"want,omitempty"`
	// Until repeats the request until the status and the body, with a space between
	// them, contain the text.
	Until string `json:"until,omitempty"`
	// Events is how many events of a watch are read before it is closed.
	Events int `json:"events,omitempty"`
	// Save keeps values of the response for later cases, as ${NAME}.
	Save map[string]string `json:"save,omitempty"`
	// SaveHeaders does so with headers.
	SaveHeaders map[string]string `json:"saveHeaders,omitempty"`
	// Ignore lists dotted paths in the body that are not compared, and Only what
	// is compared at all: "status" or "headers" (which includes the status).
	Ignore []string `json:"ignore,omitempty"`
	// Without is a pattern of texts that are not compared as elements of lists.
	Without string `json:"without,omitempty"`
	Only    string `json:"only,omitempty"`
	// Differs is Catena's status where it differs from kube-apiserver's by intention. Nothing
	// else is compared then.
	Differs int `json:"differs,omitempty"`
	// Why is the reason for Ignore, Without, Only and Differs.
	Why string `json:"why,omitempty"`
}

// heldRequest is a request that the server has begun with and cannot end.
type heldRequest struct {
	Request string `json:"request"`
	As      string `json:"as"`
}

func loadProfile(t *testing.T, dir string) profile {
	t.Helper()
	var p profile
	readYAML(t, filepath.Join(dir, "flags.yaml"), &p.flags)
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	for _, file := range files {
		f := caseFile{name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		readYAML(t, file, &f.cases)
		for i := range f.cases {
			if err := f.cases[i].check(); err != nil {
				t.Fatalf("%s: case %q: %v", file, f.cases[i].Name, err)
			}
		}
		p.files = append(p.files, f)
	}
	return p
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func (c *testCase) check() error {
	switch {
	case c.Name == "":
		return fmt.Errorf("has no name: %s", c.Request)
	case (c.Request == "") == (c.Raw == ""):
		return fmt.Errorf("must have either request or raw")
	case c.bodies() > 1:
		return fmt.Errorf("must have one of body, base64 and object")
	case c.Want == nil:
		return fmt.Errorf("does not say what it wants")
	case (c.Only != "" || len(c.Ignore) > 0 || c.Without != "" || c.Differs != 0) && c.Why == "":
		return fmt.Errorf("does not say why it does not compare all")
	case c.Only != "" && c.Only != "status" && c.Only != "headers":
		return fmt.Errorf("only %q is unknown", c.Only)
	case c.Until != "" && !strings.HasPrefix(c.Request, "GET ") && !strings.Contains(c.Request, "dryRun=All"):
		return fmt.Errorf("repeats a request that changes something: what it left behind is what the next one would find")
	}
	if c.Meanwhile != nil {
		return c.Meanwhile.check()
	}
	return nil
}

func (c *testCase) bodies() int {
	n := 0
	for _, set := range []bool{c.Body != "", c.Base64 != nil, c.Object != nil} {
		if set {
			n++
		}
	}
	return n
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// expand returns the case with the variables of a server replaced by their values.
func (c testCase) expand(vars map[string]string) testCase {
	put := func(text string) string {
		return variable.ReplaceAllStringFunc(text, func(ref string) string {
			if value, ok := vars[ref[2:len(ref)-1]]; ok {
				return value
			}
			return ref
		})
	}
	c.Request, c.Raw, c.Body = put(c.Request), put(c.Raw), put(c.Body)
	c.Headers = maps.Clone(c.Headers)
	for key, value := range c.Headers {
		c.Headers[key] = put(value)
	}
	c.Object = expandValue(c.Object, put)
	if c.Meanwhile != nil {
		meanwhile := c.Meanwhile.expand(vars)
		c.Meanwhile = &meanwhile
	}
	return c
}

func expandValue(value any, put func(string) string) any {
	switch v := value.(type) {
	case string:
		return put(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = expandValue(v[i], put)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = expandValue(v[key], put)
		}
		return out
	default:
		return value
	}
}
