package stagev1

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

var update = flag.Bool("update", false, "add what is new in the protocol to testdata/protocol.txt")

// The protocol only grows: all that has ever been part of it still is, with the same
// numbers, types and names. The fixture has one line for each part; -update adds new
// lines and takes none out.
func TestOnlyGrows(t *testing.T) {
	t.Parallel()
	fixture := filepath.Join("testdata", "protocol.txt")
	text, err := os.ReadFile(fixture)
	if err != nil && !*update {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	now := parts(File_sdk_stagev1_stage_proto)
	for _, part := range before {
		if part != "" && !slices.Contains(now, part) {
			t.Errorf("is not in the protocol any more, or has changed: %s", part)
		}
	}
	var added []string
	for _, part := range now {
		if !slices.Contains(before, part) {
			added = append(added, part)
		}
	}
	if len(added) == 0 || t.Failed() {
		return
	}
	if !*update {
		t.Fatalf("new in the protocol; run go test -update:\n%s", strings.Join(added, "\n"))
	}
	if err := os.WriteFile(fixture, []byte(strings.Join(now, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// parts lists all that two sides of the protocol must agree on.
func parts(file protoreflect.FileDescriptor) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for i := range file.Services().Len() {
		service := file.Services().Get(i)
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			add("rpc %s.%s(%s%s) returns (%s%s)", service.FullName(), m.Name(),
				stream(m.IsStreamingClient()), m.Input().FullName(), stream(m.IsStreamingServer()), m.Output().FullName())
		}
	}
	messageParts(file.Messages(), add)
	for _, line := range [][2]string{
		{"cookie", MagicCookieKey + "=" + MagicCookieValue}, {"plugin", PluginName}, {"version", fmt.Sprint(ProtocolVersion)},
		{"variable", EnvListener}, {"variable", EnvParent}, {"variable", EnvLogLevel},
		{"header", HeaderUser}, {"header", HeaderRequest}, {"header", HeaderTimeout}, {"header", HeaderReceived}, {"header", HeaderAuditLevel},
		{"header", HeaderRequestInfo},
		{"header", HeaderDecline}, {"header", HeaderAudit}, {"header", HeaderLatency}, {"header", HeaderNext}, {"header", HeaderDelegate}, {"header", HeaderUndelivered}, {"header", HeaderLead},
	} {
		add("%s %s", line[0], line[1])
	}
	slices.Sort(all)
	return all
}

func messageParts(messages protoreflect.MessageDescriptors, add func(string, ...any)) {
	for i := range messages.Len() {
		m := messages.Get(i)
		add("message %s", m.FullName())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			if f.Message() != nil {
				kind = string(f.Message().FullName())
			} else if f.Enum() != nil {
				kind = string(f.Enum().FullName())
			}
			add("field %s.%s = %d: %s %s", m.FullName(), f.Name(), f.Number(), f.Cardinality(), kind)
		}
		for j := range m.Enums().Len() {
			enum := m.Enums().Get(j)
			for k := range enum.Values().Len() {
				v := enum.Values().Get(k)
				add("value %s = %d", v.FullName(), v.Number())
			}
		}
		messageParts(m.Messages(), add)
	}
}

func stream(yes bool) string {
	if yes {
		return "stream "
	}
	return ""
}
