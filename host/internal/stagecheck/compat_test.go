//go:build linux

package stagecheck

import (
	"encoding/hex"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// A stage that was built against the protocol as it was when it was published keeps
// working: the host serves it, and no part of the protocol that it uses has changed its meaning.
func TestCompatible(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "catena-stage-yesterday")
	build := exec.Command("go", "build", "-o", binary, "./testdata/protocol-v1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("descriptor", func(t *testing.T) {
		t.Parallel()
		known := fields(protodesc.ToFileDescriptorProto(stagev1.File_sdk_stagev1_stage_proto))
		for key, value := range fields(descriptorOf(t, binary)) {
			if known[key] != value {
				t.Errorf("%s was %q, is %q", key, value, known[key])
			}
		}
	})
	t.Run("check", func(t *testing.T) {
		t.Parallel()
		later := []string{"message-size", "once", "drain"} // are looked at closer now than when it was written; hosts take it all the same
		report, err := Run(t.Context(), Options{Binary: binary, Endpoints: "/yesterday/check", Requests: 2000, Timeout: 2 * time.Minute, Skip: later})
		if err != nil {
			t.Fatal(err)
		}
		skipped := map[string]bool{"standby": true, "trailers": true, "upgrade": true, "control": true, "metrics": true, "peers": true} // which it does not do
		for _, name := range later {
			skipped[name] = true
		}
		for _, r := range report.Results {
			if r.Status == Failed || r.Status == Skipped && !skipped[r.Check] && !strings.HasPrefix(r.Check, "through") {
				t.Error(r)
			}
		}
	})
	t.Run("next", func(t *testing.T) {
		t.Parallel()
		s := &suite{wait: patience(time.Minute), opts: Options{Binary: binary, Timeout: time.Minute}.withDefaults(), dir: t.TempDir(), logs: newRecorder(), report: &Report{}}
		s.binary.Name, s.binary.Path = "yesterday", binary
		st, err := s.bringUp(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer st.close()
		a, err := st.do(t.Context(), http.MethodGet, "/yesterday/next", nil, nil)
		if err != nil || a.status != http.StatusOK || a.downstream.Target != "/changed" {
			t.Errorf("%d %s, %v, downstream: %+v", a.status, a.body, err, a.downstream)
		}
	})
}

func descriptorOf(t *testing.T, binary string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	out, err := exec.Command(binary, "descriptor").Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.Fields(string(out))[0])
	if err != nil {
		t.Fatal(err)
	}
	var file descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return &file
}
