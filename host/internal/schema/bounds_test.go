package schema

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// A schema that would take much to parse, resolve or compile is refused before that.
func TestSchemaBeyondBounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"long":           {`{"description": "` + strings.Repeat("x", bounds.Schema) + `"}`, "a stage's can have 65536"},
		"deep":           {strings.Repeat(`{"items":`, bounds.SchemaDepth) + "{}" + strings.Repeat("}", bounds.SchemaDepth), "more than 32 levels"},
		"deep lists":     {`{"enum": ` + strings.Repeat("[", bounds.SchemaDepth) + strings.Repeat("]", bounds.SchemaDepth) + "}", "more than 32 levels"},
		"large pattern":  {`{"pattern": "(((a{1000}){1000}){1000})"}`, ""},
		"large patterns": {`{"patternProperties": {"a{900}b{900}": {}}, "properties": {"x": {"pattern": "` + strings.Repeat("(a{999})", 60) + `"}}}`, "patterns are too large"},
		"long pattern":   {`{"pattern": "` + strings.Repeat("a", longPattern+1) + `"}`, "patterns are too large"},
	} {
		for what, err := range map[string]error{"Check": second(Check(t.Context(), tc.text, nil)), "ParseSecrets": second(ParseSecrets(tc.text))} {
			if what == "ParseSecrets" && strings.Contains(name, "pattern") {
				continue // it compiles none
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Brackets in texts are no levels.
func TestSchemaWithinBounds(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"items":`, bounds.SchemaDepth-1) + "{}" + strings.Repeat("}", bounds.SchemaDepth-1)
	for _, text := range []string{`{"description": "` + strings.Repeat(`[{\"`, 100) + `"}`, deep} {
		if _, err := Check(t.Context(), text, nil); err != nil {
			t.Errorf("%.100s: %v", text, err)
		}
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := Check(ctx, `{"type": "object"}`, map[string]any{"a": 1}); !errors.Is(err, gone) {
		t.Error(err)
	}
}
