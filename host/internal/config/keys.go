package config

import (
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/scheduling"
)

// Type is what a key's value has to be.
type Type string

// The types of keys.
const (
	String   Type = "string"
	List     Type = "list of strings"
	Integer  Type = "integer"
	Bool     Type = "true or false"
	Duration Type = "duration"
	// Quantity is a number in Kubernetes' notation, such as 512Mi or 500m.
	Quantity Type = "quantity"
	// Flag is a value, or a list of values, for a flag of kube-apiserver.
	Flag Type = "value or list of values"
	// Text is a string; numbers and booleans are taken for one.
	Text Type = "value"
	// Object is a mapping with any keys.
	Object Type = "mapping"
)

// Key describes one key of the configuration.
type Key struct {
	// Path is the dotted key; a * stands for a name of the user's choice.
	Path string
	Type Type
	// Choices are the only values that a string may have; any if empty.
	Choices []string
	// Default is the value if no layer gives one: a string, []string, int64,
	// bool or time.Duration. It is nil if the key has no default, or if DefaultDoc describes it.
	Default    any
	DefaultDoc string
	// Doc is the documentation of the key.
	Doc string

	check func(any) error
}

// The values of apiserverDefaults.
const (
	CatenaDefaults     = "catena"
	KubernetesDefaults = "kube-apiserver"
)

// The values of kubernetesEvents.
const (
	EventsAuto = "auto"
	EventsOn   = "on"
	EventsOff  = "off"
)

// The values of log.format. The last two are formats of Kubernetes' programs.
const (
	TextLog     = "text"
	JSONLog     = "json"
	KlogLog     = "klog"
	KlogJSONLog = "klog-json"
)

// LogFormats are the values of log.format.
func LogFormats() []string { return []string{TextLog, JSONLog, KlogLog, KlogJSONLog} }

// BuiltinBinary is the value of a stage's binary with which it is part of the host's own program.
const BuiltinBinary = "builtin"

// The only API version and kind of a configuration.
const (
	APIVersion = "catena.dev/v1alpha1"
	Kind       = "HostConfiguration"
)

// Keys returns every key of the configuration. Strictness, suggestions, names of
// environment variables, defaults and documentation all come from this table.
func Keys() []Key {
	return slices.Concat(hostKeys(), storeKeys(), stageKeys())
}

func hostKeys() []Key {
	return []Key{
		{Path: "apiVersion", Type: String, Choices: []string{APIVersion}, Default: APIVersion,
			Doc: "Version of this format. Required in a file of --config."},
		{Path: "kind", Type: String, Choices: []string{Kind}, Default: Kind,
			Doc: "Required in a file of --config."},
		{Path: "dataDir", Type: String, Default: "./data", check: notEmpty,
			Doc: "Directory of all state: the embedded etcd, keys, certificates, each stage's own directory. Catena sets its mode to 0700."},
		{Path: "runtimeDir", Type: String, DefaultDoc: "`DATA_DIR/run`",
			Doc: "Directory of the Unix sockets. Its path must be short; the default moves to the directory for temporary files where it would be too long."},
		{Path: "pluginDirs", Type: List, Default: []string{"./plugins"},
			Doc: "Directories that are searched for catena-stage-NAME, in this order."},
		{Path: "watchPlugins", Type: Bool, Default: false,
			Doc: "Whether a stage is swapped as soon as its binary in a plugin directory, or that of stages.NAME.binary, is replaced by another."},
		{Path: "holdTimeout", Type: Duration, Default: 10 * time.Second, check: notNegative,
			Doc: "How long requests wait for the next process of a stage that has died before they get 503. More than half a minute is of little use: clients have timeouts of their own."},
		{Path: "holdRequests", Type: Integer, Default: int64(1000), check: positive,
			Doc: "How many requests may wait for one such stage; those above get 503 at once."},
		{Path: "preShutdownTimeout", Type: Duration, Default: 10 * time.Second, check: positive,
			Doc: "How long the pre-shutdown hooks of the server and of its stages may take when the server ends."},
		{Path: "cpuSchedulingPolicy", Type: String, Choices: scheduling.Policies(), Default: scheduling.Batch,
			Doc: "How Linux schedules the host and its stages, see sched(7). With `batch`, where all processors are busy, a thread that wakes up waits instead of interrupting another one, and a request through several processes costs less. `other` is what processes have by default. A policy of another kind that the host was started with stays."},
		{Path: "log.level", Type: String, Choices: levels(), Default: "info",
			Doc: "Least level of the messages that the host writes."},
		{Path: "log.stageLevel", Type: String, Choices: append(levels(), LevelAuto), Default: LevelAuto,
			Doc: "Least level of the messages of the stages, of Kubernetes' code in the host and of the embedded etcd. `auto` is `warn` for what is Kubernetes' or etcd's, and `info` for stages of other names than aggregator, core, extensions and controllers."},
		{Path: "log.format", Type: String, Choices: LogFormats(), Default: TextLog,
			Doc: "Form of the messages: as `text`, as `json`, or in one of the two formats of Kubernetes' programs, `klog` and `klog-json`."},
		{Path: "apiserverDefaults", Type: String, Choices: []string{CatenaDefaults, KubernetesDefaults}, Default: CatenaDefaults,
			Doc: "What holds for flags of kube-apiserver that are not set: `catena`, with RBAC and with certificates and keys that it makes in the data directory, or `kube-apiserver`, as that has them. " +
				"With the latter, aggregator, core and extensions are in the chain without being declared."},
		{Path: "kubernetesEvents", Type: String, Choices: []string{EventsAuto, EventsOn, EventsOff}, Default: EventsAuto,
			Doc: "Whether crashes and changes of stages and reloads are written as Events of Kubernetes in the namespace kube-system, if a stage serves these: `on`, `off`, or `auto`, which is `on` unless `apiserverDefaults` is `kube-apiserver`."},
		{Path: "apiserver.*", Type: Flag,
			Doc: "A flag of kube-apiserver by its own name, for the host and for all stages alike. One element of a list is one use of the flag."},
	}
}

func levels() []string { return []string{"trace", "debug", "info", "warn", "error"} }

func storeKeys() []Key {
	return []Key{
		{Path: "store.endpoints", Type: List, check: endpoints,
			Doc: "URLs of an external etcd cluster, https://HOST:PORT. The embedded etcd runs without them."},
		{Path: "store.caFile", Type: String, Doc: "Certificates of the authorities that the external cluster's certificates come from, PEM."},
		{Path: "store.certFile", Type: String, Doc: "Client certificate for the external cluster, PEM."},
		{Path: "store.keyFile", Type: String, Doc: "Key of store.certFile, PEM."},
		{Path: "store.prefix", Type: String, Default: "/registry", check: notEmpty,
			Doc: "What all keys in etcd begin with; etcd-prefix of kube-apiserver."},
		{Path: "store.compactionInterval", Type: Duration, Default: 5 * time.Minute, check: notNegative,
			Doc: "Time between two compactions of etcd's history, 0 for none; etcd-compaction-interval of kube-apiserver."},
		{Path: "store.quotaBytes", Type: Integer, Default: int64(0), check: notNegative,
			Doc: "Size up to which the embedded etcd may grow, 0 for etcd's default of 2 GiB."},
	}
}

func stageKeys() []Key {
	return []Key{
		{Path: "stages.*.disabled", Type: Bool, Default: false,
			Doc: "Whether the stage is left out of the chain. The stage upstream of it then delegates to its delegate."},
		{Path: "stages.*.delegate", Type: String, Default: "",
			Doc: "The stage that gets the requests which this one does not serve. The tail of the chain has none."},
		{Path: "stages.*.binary", Type: String, DefaultDoc: "catena-stage-NAME in pluginDirs",
			Doc: "Path of the plugin binary, or `builtin` for the stage of this name that is in the program of the host itself."},
		{Path: "stages.*.sha256", Type: String, check: digest,
			Doc: "SHA-256 of the binary in hexadecimal digits. The stage is not started from a file with another one."},
		{Path: "stages.*.lock", Type: String, Choices: []string{"required", "off"}, Default: "required",
			Doc: "Whether catena.lock, beside the first file of --config, must have the stage's file for it to be executed. " +
				"Unset, the stages of Kubernetes need none in the program of the host itself."},
		{Path: "stages.*.startTimeout", Type: Duration, Default: time.Minute, check: positive,
			Doc: "Time that each step may take in which the stage comes up: launch, check of its configuration, configuration, preparation and, in a swap, getting ready."},
		{Path: "stages.*.livenessTimeout", Type: Duration, Default: 15 * time.Second, check: notNegative,
			Doc: "How long the stage, or one of its checks of /livez, may not respond before its process is killed and started again, 0 for ever."},
		{Path: "stages.*.drainTimeout", Type: Duration, Default: time.Minute, check: positive,
			Doc: "How long a generation of the stage that has been replaced may go on serving the requests that it has."},
		{Path: "stages.*.drainSpread", Type: Duration, Default: 5 * time.Second, check: notNegative,
			Doc: "Time over which such a generation ends its watches, so that their clients do not all connect again at once."},
		{Path: "stages.*.watches", Type: String, Default: "resume",
			Choices: []string{"resume", "verify", "passthrough"},
			Doc: "What becomes of a watch whose process is replaced or dies: `resume` has the next process go on with it, " +
				"`verify` also has it send the latest events again, and compares them with what the client got, " +
				"for stages in doubt; `passthrough` ends it, and its client begins another. A change is for watches that begin then."},
		{Path: "stages.*.required", Type: Bool, Default: true,
			Doc: "Whether the stage has to come up for the server to start, and /readyz fails while it is down. What the stage owns gets 503 either way."},
		{Path: "stages.*.standby", Type: Bool, Default: false,
			Doc: "Whether a second process of the stage is kept ready to take over the moment the first one dies. It costs the memory of one more process."},
		{Path: "stages.*.rollbackOn", Type: List, DefaultDoc: "`[health]` for `catena swap` and `watchPlugins`, otherwise `[]`", check: rollbackOn,
			Doc: "What makes a swap or a reload go back to the previous process of the stage within its probation, besides the end of the new one: `errors=5%`, for that share of its requests failing, and `health`, for a health check failing. With `[]` no process is kept to go back to."},
		{Path: "stages.*.probation", Type: Duration, Default: 30 * time.Second, check: positive,
			Doc: "How long rollbackOn applies, and the previous process is kept; `10s` after `catena swap` and `watchPlugins` if neither of the two keys is set."},
		{Path: "stages.*.identity.user", Type: String, DefaultDoc: "`system:catena:stage:NAME`", check: notEmpty,
			Doc: "Name of the user as which the stage calls the API server. Catena ships with that of kube-apiserver for the stages of Kubernetes."},
		{Path: "stages.*.identity.groups", Type: List, Default: []string{"system:catena:stages"},
			Doc: "Groups of that user. Catena ships with those of kube-apiserver for the stages of Kubernetes."},
		{Path: "stages.*.grants.claims", Type: List, Default: []string{}, check: claims,
			Doc: "Paths of the Kubernetes API that the stage may claim: `/a` is that path, `/a/**` also everything below it, `/a/*` what is one segment below it. `/**` is everything. A `*` before the end is any one segment: `/api/v1/namespaces/*/secrets/**`. Paths outside of the Kubernetes API need no grant."},
		{Path: "stages.*.grants.rewrite", Type: Bool, Default: false,
			Doc: "Whether the stage may hand on a request with another method, path or query, or more than once if it writes. It is authorized anew."},
		{Path: "stages.*.grants.delegates", Type: Bool, Default: false,
			Doc: "Whether the stage may call the stages downstream for more than discovery and OpenAPI, as its own user."},
		{Path: "stages.*.grants.systemRequests", Type: Bool, Default: false,
			Doc: "Whether the stage gets requests of the user system:apiserver, which are those of the host itself and of Kubernetes' stages, for paths that it needs a grant to claim. They bypass it otherwise."},
		{Path: "stages.*.grants.store", Type: String, Choices: []string{"none", "own", "registry"}, Default: "none",
			Doc: "What the stage may use of the store: nothing, keys of its own, or all of Kubernetes' registry."},
		{Path: "stages.*.grants.keys", Type: Bool, Default: false,
			Doc: "Whether the stage gets the flags of kube-apiserver that name private keys, if it reads them."},
		{Path: "stages.*.grants.network", Type: Bool, Default: false,
			Doc: "Whether the stage may make network connections of its own."},
		{Path: "stages.*.grants.files", Type: List, Default: []string{},
			Doc: "Paths of files and directories that the stage may read beyond its binary and its data directory. One that ends with `:rw` it may also write."},
		{Path: "stages.*.limits.memory", Type: Quantity, DefaultDoc: "none", check: memory,
			Doc: "Memory, such as 512Mi, at which a process of the stage is killed and another started."},
		{Path: "stages.*.limits.memorySoft", Type: Quantity, DefaultDoc: "80 % of memory", check: memory,
			Doc: "Memory at which the stage is swapped to a fresh process of the same binary. Sets `GOMEMLIMIT` in the stage's environment to 90 % of it, unless `env` does."},
		{Path: "stages.*.limits.openFiles", Type: Integer, DefaultDoc: "the host's own, if isolated without `keys` and `store: registry` at most 16384", check: atLeast(leastOpenFiles),
			Doc: "Files and sockets that a process of the stage may have open, `RLIMIT_NOFILE`."},
		{Path: "stages.*.limits.cpu", Type: Quantity, DefaultDoc: "none", check: cpu,
			Doc: "Processors, such as 0.5 or 2, that a process of the stage may use together with all that it has started. It takes a [cgroup](operations.md#limits)."},
		{Path: "stages.*.limits.pids", Type: Integer, DefaultDoc: "none", check: atLeast(leastPIDs),
			Doc: "Processes and threads of a process of the stage and of all that it has started. It takes a [cgroup](operations.md#limits)."},
		{Path: "stages.*.env.*", Type: Text, check: noNUL,
			Doc: "A variable for the environment of the stage's process, which otherwise gets a short list of the host's."},
		{Path: "stages.*.isolation", Type: String, Choices: isolation.Modes(), Default: "auto",
			Doc: "How the kernel keeps the stage from what it was not granted: `auto` by all means of this machine, `required` by all means or not at all, `off` by none. See [Isolation](security.md#isolation)."},
		{Path: "stages.*.apiserver.*", Type: Flag,
			Doc: "A flag of kube-apiserver for this stage alone, in place of `apiserver.FLAG`; with an empty list it has its default. A stage of another release may know flags that the host does not, or lack some."},
		{Path: "stages.*.config", Type: Object,
			Doc: "The stage's own configuration, with keys as the stage defines them."},
	}
}

// FlagKey returns the key that stands for a flag of kube-apiserver.
func FlagKey(flag string) string {
	if key := hostFlags()[flag]; key != "" {
		return key
	}
	return "apiserver." + flag
}

// hostFlags returns the flags of kube-apiserver that Catena sets itself, with the key that
// replaces each.
func hostFlags() map[string]string {
	return map[string]string{
		"etcd-servers":             "store.endpoints",
		"etcd-cafile":              "store.caFile",
		"etcd-certfile":            "store.certFile",
		"etcd-keyfile":             "store.keyFile",
		"etcd-prefix":              "store.prefix",
		"etcd-compaction-interval": "store.compactionInterval",
	}
}
