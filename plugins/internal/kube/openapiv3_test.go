package kube

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagetest"
)

// TestOpenAPIv3IsMadeEarly shows that core makes the documents before anybody asks for them: each has the second in
// which it was made, and those that are asked for here have not been before.
func TestOpenAPIv3IsMadeEarly(t *testing.T) {
	t.Parallel()
	// Nobody else asks: there is no aggregator, and the server's own requests get nowhere.
	core := stagetest.Launch(t, coreStage, stagetest.Options{Flags: flags(t), User: admin, Next: http.NotFoundHandler(), API: http.NotFoundHandler()})
	if err := errors.Join(core.Configure(), core.PrepareRun()); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{
		"apps/v1", "batch/v1", "autoscaling/v2", "policy/v1", "storage.k8s.io/v1", "networking.k8s.io/v1", "discovery.k8s.io/v1",
		"coordination.k8s.io/v1", "events.k8s.io/v1", "node.k8s.io/v1", "scheduling.k8s.io/v1", "certificates.k8s.io/v1",
	} {
		asked := time.Now().Truncate(time.Second)
		resp, err := http.Get(core.URL + openAPIIndex + "/apis/" + group)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		made, err := http.ParseTime(resp.Header.Get("Last-Modified"))
		if err != nil {
			t.Fatalf("%s: %s: %v", group, resp.Status, err)
		}
		if made.Before(asked) {
			return
		}
		time.Sleep(time.Until(asked.Add(time.Second))) // as long as the second lasts, early and late are the same
	}
	t.Error("each document was made when it was asked for")
}
