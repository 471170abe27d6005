package process

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckHandshake(t *testing.T) {
	t.Parallel()
	cert := certificate()
	for _, tc := range []struct{ line, want string }{
		{"1|1|unix|/run/d/plugin1|grpc|" + cert, ""},
		{" 1|1|unix|/run/d/plugin1|grpc|" + cert + "|true\r", ""},
		{"2|1|unix|/run/d/plugin1|grpc|" + cert, "version 2 of go-plugin's own protocol"},
		{"1|2|unix|/run/d/plugin1|grpc|" + cert, "version 2 of the stage protocol, this host speaks 1"},
		{"1|1|unix|/run/d/plugin1|netrpc|" + cert, "gRPC"},
		{"1|1|unix|/run/d/plugin1", "gRPC"},
		{"1|1|tcp|127.0.0.1:1234|grpc|" + cert, "listens on tcp 127.0.0.1:1234"},
		{"1|1|unix|/tmp/plugin1|grpc|" + cert, "listens on unix /tmp/plugin1"},
		{"1|1|unix|/run/d/../plugin1|grpc|" + cert, "listens on"},
		{"1|1|unix|/run/d/plugin1|grpc|", ""},
		{"1|1|unix|/run/d/plugin1|grpc", ""},
		{"1|1|unix|/run/d/plugin1|grpc|QUJD", "in place of a certificate"},
		{"1|1|unix|/run/d/plugin1|grpc|" + cert + "==", "as base64 with padding; it must have none"},
		{"1|1|unix|/run/d/plugin1|grpc|" + cert + "-", "is not base64 without padding"},
		{"1|1|unix|/run/d/plugin1|grpc|" + cert[:200], "is not one in DER"},
		{"hello", errNoHandshake.Error()},
		{"", errNoHandshake.Error()},
		{"a|b|c|d|e|f", errNoHandshake.Error()},
		{"1|-1|unix|/run/d/p|grpc|" + cert, errNoHandshake.Error()},
	} {
		err := checkHandshake(tc.line, "/run/d")
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%.60s: got %v, want %q", tc.line, err, tc.want)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|/run/d/plugin1|grpc|" + strings.Repeat("A", 900))
	f.Add("|||||")
	f.Fuzz(func(t *testing.T, line string) {
		err := checkHandshake(line, "/run/d")
		if err == nil && !strings.Contains(line, "|unix|/run/d") {
			t.Errorf("accepted %q", line)
		}
		if errors.Is(err, errNoHandshake) {
			_ = quote(line)
		}
	})
}
