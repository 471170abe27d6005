package supervisor

import (
	"os"
	"strings"
	"testing"
)

// envSchema is the schema of the configurations of the test stages.
const envSchema = "SUPERVISOR_TEST_SCHEMA"

// A configuration that the schema of its stage does not allow is found before any stage
// is configured.
func TestConfigIsCheckedAgainstSchema(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ schema, want string }{
		"wrong":     {`{"properties": {"log": {"type": "integer"}}}`, `stages.b.config.log: want integer, got string (says stage "b")`},
		"no schema": {`{"type": 7}`, `stage "b": its configuration's schema is no JSON schema`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := start(t, func(o *options) { o.Chain[1].Env[envSchema] = tc.schema })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if notes, err := os.ReadFile(f.log); err == nil {
				t.Errorf("before that: %s", notes)
			}
		})
	}
}
