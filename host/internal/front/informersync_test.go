package front

import (
	"testing"

	"k8s.io/client-go/informers"
)

// Informers whose APIs are served, and which the server has not started yet, have not synced.
func TestInformersThatAreNotStartedHaveNotSynced(t *testing.T) {
	t.Parallel()
	now := make(chan struct{})
	close(now)
	i := &filterInformers{SharedInformerFactory: informers.NewSharedInformerFactory(nil, 0)}
	if got := i.WaitForCacheSync(now); len(got) != 0 {
		t.Errorf("without their APIs: %v", got)
	}
	i.setPaths([]string{legacyAPI})
	synced := true
	for _, s := range i.WaitForCacheSync(now) {
		synced = false
		if s {
			t.Error("synced before the start")
		}
	}
	if synced {
		t.Error("informers that are to be started count as synced")
	}
	i.Start(t.Context().Done())
	if got := i.WaitForCacheSync(now); len(got) != 0 {
		t.Errorf("started, and there is none: %v", got)
	}
}
