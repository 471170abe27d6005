package store

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
)

// However often etcd complains that the machine is slow: that is one line in a minute, and none in the first, in which the
// server starts. What else it says is not held back.
func TestSlowMachineIsOneLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newZap(hclog.New(&hclog.LoggerOptions{Output: &out}), func() bool { return false }, func(error) {})
		for range 3 {
			for range 20 {
				log.Warn("apply request took too long", zap.String("took", "1s"))
				log.With(zap.String("member", "x")).Warn("slow fdatasync")
			}
			time.Sleep(slowPause)
		}
		log.Warn("apply request took too long")
		log.Warn("something else")
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(got) != 4 || !strings.Contains(got[0], "etcd is slow") || !strings.Contains(got[0], "others=40") {
			t.Errorf("%q", got)
		}
	})
}
