//go:build linux

package stagecheck

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const examples = "../../../examples"

// The stages in other languages pass all checks that apply to them, and are short.
func TestOtherLanguages(t *testing.T) {
	t.Parallel()
	for name, example := range map[string]struct {
		available func(*testing.T)
		sources   []string
	}{
		"node-hello":   {needNode, []string{"catena-stage-node-hello", "stage.ts"}},
		"python-hello": {needPython, []string{"catena-stage-python-hello"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if n := lines(t, name, example.sources); n >= 170 {
				t.Errorf("%s has %d lines, want fewer than 170", name, n)
			}
			example.available(t)
			binary := filepath.Join(examples, name, "catena-stage-"+name)
			report, err := Run(t.Context(), Options{Binary: binary, Endpoints: "/" + name + "/check", Config: json.RawMessage(`{"greeting":"hi"}`), Timeout: 2 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(report.Summary())
			for _, r := range report.Results {
				if r.Status == Failed {
					t.Error(r)
				}
			}
			if report.Control != string(process.ControlDirectory) || report.Count(Passed) < 20 {
				t.Errorf("control %s, %d checks passed", report.Control, report.Count(Passed))
			}
		})
	}
}

// envRequire names languages, such as node,python. A machine that lacks what their stages
// need fails the tests that others skip.
const envRequire = "CATENA_REQUIRE"

// lacks returns what a language needs and this machine lacks.
func lacks(t *testing.T, language, format string, args ...any) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv(envRequire), ","), language) {
		t.Fatalf(envRequire+" has "+language+", and "+format, args...)
	}
	t.Skipf(format, args...)
}

// A machine that is to test the stages in other languages does not pass without them.
func TestRequiredLanguage(t *testing.T) {
	t.Parallel()
	for require, want := range map[string]string{"": "--- SKIP", "python": "--- SKIP", "python,node": "--- FAIL"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOtherLanguages$/^node-hello$", "-test.v")
		cmd.Env = append(os.Environ(), "PATH=/nowhere", envRequire+"="+require)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), want+": TestOtherLanguages/node-hello") || !strings.Contains(string(out), "node is not installed") {
			t.Errorf("%s=%s: %v, want %s\n%s", envRequire, require, err, want, out)
		}
	}
}

func needNode(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		lacks(t, "node", "node is not installed")
	}
	dir := filepath.Join(examples, "node-hello")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		lacks(t, "node", "npm's packages are not installed: run make examples")
	}
	built, err := os.Stat(filepath.Join(dir, "build", "stage.js"))
	if err != nil {
		lacks(t, "node", "stage.ts is not compiled: run make examples")
	}
	if source, err := os.Stat(filepath.Join(dir, "stage.ts")); err != nil || source.ModTime().After(built.ModTime()) {
		lacks(t, "node", "stage.ts has changed since it was compiled: run make examples")
	}
}

// lines counts those of all files of an example together.
func lines(t *testing.T, name string, files []string) int {
	t.Helper()
	n := 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(examples, name, file))
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(text, []byte("\n"))
	}
	return n
}

func needPython(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").CombinedOutput(); err != nil {
		lacks(t, "python", "python3-grpcio and python3-protobuf are not installed: %s", out)
	}
}

// The part of the protocol that the stage in Python has is part of it. The protocol may have more.
func TestPythonProtocol(t *testing.T) {
	t.Parallel()
	needPython(t)
	cmd := exec.Command("/usr/bin/python3", "-c", "import stage_pb2; print(stage_pb2.DESCRIPTOR.serialized_pb.hex())")
	cmd.Dir = filepath.Join(examples, "python-hello")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	var python descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(raw, &python); err != nil {
		t.Fatal(err)
	}
	known := fields(protodesc.ToFileDescriptorProto(stagev1.File_sdk_stagev1_stage_proto))
	for key, value := range fields(&python) {
		if known[key] != value {
			t.Errorf("%s is %q in examples/python-hello/stage_pb2.py, %q in stage.proto; run make generate-python", key, value, known[key])
		}
	}
}

// fields flattens a file: names of fields and methods, with their numbers and types.
func fields(file *descriptorpb.FileDescriptorProto) map[string]string {
	all := map[string]string{}
	for _, m := range file.GetMessageType() {
		for _, f := range m.GetField() {
			all[m.GetName()+"."+f.GetName()] = strings.Join([]string{
				f.GetType().String(), f.GetLabel().String(), f.GetTypeName(), string(rune('0' + f.GetNumber())),
			}, " ")
		}
	}
	for _, s := range file.GetService() {
		for _, m := range s.GetMethod() {
			all[s.GetName()+"."+m.GetName()] = m.GetInputType() + " " + m.GetOutputType()
		}
	}
	return all
}
