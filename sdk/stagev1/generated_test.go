package stagev1

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// The generated code is of today's stage.proto: every method, message, field and value of
// the text is in the descriptor that both sides speak by, and the other way round.
func TestGenerated(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("stage.proto")
	if err != nil {
		t.Fatal(err)
	}
	var generated []string
	for _, part := range parts(File_sdk_stagev1_stage_proto) {
		if what, _, _ := strings.Cut(part, " "); slices.Contains([]string{"rpc", "message", "field", "value"}, what) {
			generated = append(generated, part)
		}
	}
	if diff := gocmp.Diff(partsOfText(string(text)), generated); diff != "" {
		t.Errorf("stage.proto is not what the code was generated from; run make generate (-text +code):\n%s", diff)
	}
}

// The service's code has the methods of its descriptor, each streaming or not.
func TestGeneratedService(t *testing.T) {
	t.Parallel()
	coded := map[string]bool{}
	for _, m := range Stage_ServiceDesc.Methods {
		coded[m.MethodName] = false
	}
	for _, m := range Stage_ServiceDesc.Streams {
		coded[m.StreamName] = m.ServerStreams
	}
	described := map[string]bool{}
	methods := File_sdk_stagev1_stage_proto.Services().ByName("Stage").Methods()
	for i := range methods.Len() {
		described[string(methods.Get(i).Name())] = methods.Get(i).IsStreamingServer()
	}
	if diff := gocmp.Diff(described, coded); diff != "" {
		t.Errorf("(-descriptor +code):\n%s", diff)
	}
}

// partsOfText lists the parts of a proto file in the style of stage.proto, as parts lists
// those of a descriptor.
func partsOfText(proto string) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	types := map[string]string{}
	for block, line := range declarations(proto) {
		if m := blockLine.FindStringSubmatch(line); m != nil {
			types[m[2]] = block
		}
	}
	for block, line := range declarations(proto) {
		if m := blockLine.FindStringSubmatch(line); m != nil && m[1] == "message" {
			add("message %s", block)
		} else if m := rpcLine.FindStringSubmatch(line); m != nil {
			add("rpc %s.%s(%s) returns (%s)", block, m[1], types[m[2]], m[3]+types[m[4]])
		} else if m := fieldLine.FindStringSubmatch(line); m != nil {
			add("field %s.%s = %s: %s %s", block, m[3], m[4], cmp.Or(strings.TrimSpace(m[1]), "optional"), cmp.Or(types[m[2]], m[2]))
		} else if m := valueLine.FindStringSubmatch(line); m != nil {
			// The name of a value is beside that of its enumeration.
			add("value %s.%s = %s", block[:strings.LastIndex(block, ".")], m[1], m[2])
		}
	}
	slices.Sort(all)
	return all
}

// declarations yields each line but comments, with the full name of the block that it is
// in or begins.
func declarations(proto string) iter.Seq2[string, string] {
	return func(yield func(block, line string) bool) {
		open := []string{"catena.stage.v1"}
		for line := range strings.Lines(proto) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "//") {
				continue
			}
			if m := blockLine.FindStringSubmatch(line); m != nil {
				open = append(open, m[2])
			}
			if !yield(strings.Join(open, "."), line) {
				return
			}
			if strings.HasSuffix(line, "}") {
				open = open[:len(open)-1]
			}
		}
	}
}
