package system

import (
	"errors"
	"net/http"

	"github.com/catena-dev/catena/sdk"
)

func newWardle(*sdk.Env) (http.Handler, error) { return nil, errors.New("todo") }
