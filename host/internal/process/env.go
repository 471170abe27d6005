package process

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// environment returns the environment of a stage: the host's variables that are inherited,
// then the configured ones, then those of the protocol. Later ones win. The result is
// sorted and names each variable once.
func environment(s Spec, configured map[string]string, protocol []string) []string {
	vars := map[string]string{}
	for _, kv := range s.HostEnv {
		if name, value, ok := strings.Cut(kv, "="); ok && s.inherits(name) {
			vars[name] = value
		}
	}
	maps.Copy(vars, configured)
	for _, kv := range protocol {
		if name, value, ok := strings.Cut(kv, "="); ok {
			vars[name] = value
		}
	}
	env := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// withDefaults adds to the configured variables those that a binary gets unless they are
// configured. A script must not change its own directory, which the lock covers.
func withDefaults(configured map[string]string, binary *os.File) map[string]string {
	const noBytecode = "PYTHONDONTWRITEBYTECODE"
	if _, isScript := interpreter(binary); !isScript {
		return configured
	}
	vars := map[string]string{noBytecode: "1"}
	maps.Copy(vars, configured)
	return vars
}

// inherits reports whether the stage gets this variable of the host. The package's documentation lists them.
func (s Spec) inherits(name string) bool {
	switch strings.ToUpper(name) {
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY":
		return s.Trusted || s.Isolation.Network
	}
	switch name {
	case "PATH", "HOME", "TMPDIR", "USER", "LANG", "TZ", "ZONEINFO",
		"SSL_CERT_FILE", "SSL_CERT_DIR",
		"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
		"DISABLE_HTTP2", "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS", "DEBUG_HTTP2_GOROUTINES", "ETCD_CLIENT_DEBUG":
		return true
	}
	prefixes := []string{"LC_", "KUBE_FEATURE_", "GRPC_GO_LOG_"}
	if s.Trusted {
		prefixes = append(prefixes, "KUBE_", "GRPC_", "OTEL_")
	}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// checkEnv checks that the kernel and programs can represent the variables.
func checkEnv(vars map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("environment variable %q: a name must not be empty or hold = or a zero byte", name)
		}
		if strings.Contains(vars[name], "\x00") {
			return fmt.Errorf("environment variable %q: its value holds a zero byte", name)
		}
	}
	return nil
}
