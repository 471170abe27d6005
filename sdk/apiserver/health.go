package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/responsewriter"

	"github.com/catena-dev/catena/sdk"
)

// hostChecks are checks that every server has and that say nothing about the
// stage: the host has its own.
var hostChecks = map[string]bool{"ping": true, "log": true, "shutdown": true}

// endpoints on which a check can be found, the one that has most of them first.
var endpoints = []string{"/readyz/", "/livez/", "/healthz/"}

// storeCheck is the name of the check of the connection to etcd, which is the store of
// all stages.
const storeCheck = "etcd"

// healthChecks returns the names of the checks of a prepared server, with the
// endpoints of each. GenericAPIServer keeps its registries to itself, but it
// serves every check at a path of its own.
func healthChecks(server *genericapiserver.GenericAPIServer) map[string][]string {
	checks := map[string][]string{}
	for _, path := range server.Handler.NonGoRestfulMux.ListedPaths() {
		for _, endpoint := range endpoints {
			if name, ok := strings.CutPrefix(path, endpoint); ok && !hostChecks[name] {
				checks[name] = append(checks[name], endpoint)
			}
		}
	}
	return checks
}

// groups has the groups of the checks of a server that is being made, as far as they are grouped: a prepared one does not show them.
func groups(c *genericapiserver.Config) map[string]string {
	groups := map[string]string{}
	for _, check := range slices.Concat(c.HealthzChecks, c.LivezChecks, c.ReadyzChecks) {
		if grouped, ok := check.(healthz.GroupedHealthChecker); ok && grouped.GroupName() != "" {
			groups[check.Name()] = grouped.GroupName()
		}
	}
	return groups
}

// registerChecks hands the health checks of a prepared server to the host.
func (a *Adapter) registerChecks(server Server) {
	for name, on := range healthChecks(server.GenericAPIServer) {
		kinds := sdk.HealthKinds{
			Readyz:  slices.Contains(on, "/readyz/"),
			Livez:   slices.Contains(on, "/livez/"),
			Healthz: slices.Contains(on, "/healthz/"),
			Startup: strings.HasPrefix(name, hookCheck) || slices.Contains(server.StartupChecks, name),
		}
		if name == storeCheck {
			kinds.ServerCheck = storeCheck
		}
		kinds.Group = a.checkGroups[name]
		path := on[0] + name
		a.env.HealthCheck(name, kinds, func(ctx context.Context) error {
			return runCheck(ctx, server.GenericAPIServer, path)
		})
	}
}

// runCheck asks server for the result of the check at path.
func runCheck(ctx context.Context, server *genericapiserver.GenericAPIServer, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return fmt.Errorf("health check %s: %w", path, err)
	}
	w := responsewriter.NewInMemoryResponseWriter()
	server.Handler.NonGoRestfulMux.ServeHTTP(w, r)
	if w.RespCode() == http.StatusOK {
		return nil
	}
	message := strings.TrimSpace(string(w.Data()))
	return errors.New(strings.TrimPrefix(message, "internal server error: "))
}
