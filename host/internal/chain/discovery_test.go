package chain

import "testing"

func TestIsDiscovery(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/api": true, "/api/v1": true, "/api/v1/": true, "/api/v1/pods": false,
		"/apis": true, "/apis/apps": true, "/apis/apps/v1": true, "/apis/apps/v1/deployments": false,
		"/openapi/v2": true, "/openapi/v3/apis/apps/v1": true,
		"/": false, "/version": false, "/apiserver": false, "/api//v1": false, "/apis/../api/v1": false, "/openapi/./v2": false,
	} {
		if got := IsDiscovery(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
