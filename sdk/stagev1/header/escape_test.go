package header

import (
	"encoding/json"
	"strings"
	"testing"
)

func checkEscape(t *testing.T, s string) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"key": s})
	if err != nil {
		t.Fatal(err)
	}
	escaped := EscapeJSON(text)
	if i := strings.IndexFunc(escaped, func(r rune) bool { return r < ' ' || r >= 0x7f }); i >= 0 {
		t.Errorf("%q is %q, which no header may have", s, escaped)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(escaped), &got); err != nil || got["key"] != strings.ToValidUTF8(s, "\ufffd") && got["key"] != string([]rune(s)) {
		t.Errorf("%q is %q, which is read as %q, %v", s, escaped, got, err)
	}
}

func TestEscapeJSON(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain", "é", "\x7f", "\U0001f600 and more", "\u2028\"\\\n", "\xff", "\uffff"} {
		checkEscape(t, s)
	}
	if got := EscapeJSON([]byte(`"aé😀"`)); got != `"a\u00e9\ud83d\ude00"` {
		t.Errorf("%s", got)
	}
}

func FuzzEscapeJSON(f *testing.F) {
	f.Add("é\x7f")
	f.Fuzz(checkEscape)
}
