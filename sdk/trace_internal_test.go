package sdk

import "testing"

func TestParseTraceParent(t *testing.T) {
	t.Parallel()
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for text, ok := range map[string]bool{
		valid: true, "01" + valid[2:]: true, "01" + valid[2:] + "-more": true,
		"":                                     false,
		valid + "-more":                        false,
		"01" + valid[2:] + "more":              false,
		"ff" + valid[2:]:                       false,
		valid[:54]:                             false,
		"00-" + valid[3:35] + "_" + valid[36:]: false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e473x-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x": false,
	} {
		if span, got := parseTraceParent(text); got != ok || ok && (!span.IsSampled() || !span.IsRemote()) {
			t.Errorf("%q: %v, %t", text, span, got)
		}
	}
}
