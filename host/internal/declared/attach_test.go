package declared

import (
	"testing"

	"github.com/catena-dev/catena/host/internal/supervisor"
)

func TestAttachedStage(t *testing.T) {
	a := Attachments{"other": "/tmp/o"}
	spec := supervisor.Spec{
		Process: supervisor.Process{Name: "other", Binary: "/b", SHA256: "1"},
		Policy:  supervisor.Policy{LivenessTimeout: 1, StartTimeout: 1, Standby: true},
	}
	a.apply(&spec)
	if spec.Attach != "/tmp/o" || spec.Binary != "" || spec.LivenessTimeout != 0 || spec.StartTimeout < attachedTimeout || spec.Standby {
		t.Errorf("got %+v", spec)
	}
}
