package isolation

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Dispatch()
	os.Exit(m.Run())
}

func TestDetect(t *testing.T) {
	m := Detect(t.Context())
	t.Logf("%+v", m)
}
