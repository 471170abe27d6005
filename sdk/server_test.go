package sdk_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk"
)

// A stage does not start with a server that does not exist.
func TestUnknownServer(t *testing.T) {
	t.Setenv("CATENA_SDK_SERVER", "nethttp")
	_, err := sdk.NewService(testStage(), nil, hclog.NewNullLogger())
	if err == nil || !strings.Contains(err.Error(), `CATENA_SDK_SERVER: "nethttp"`) {
		t.Errorf("%v", err)
	}
}
