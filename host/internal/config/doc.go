// Package config reads the configuration of the host: koanf in, one strict, typed
// and immutable Config out, or every error at once.
//
// # Layers
//
// Later ones win: defaults, shipped.yaml, the files of --config in order, the files of conf.d
// beside the last of them in order of their names, variables CATENA_… of the
// environment, flags (--set and those that stand for a key). Mappings are merged,
// other values replaced. Null undoes earlier layers: it removes a stage or a
// flag and restores a default. Inside of a stage's own config, null
// is a value like others.
//
// Relative paths are relative to the working directory of the process.
//
// # Keys
//
//	apiVersion (catena.dev/v1alpha1)
//	    Version of this format. Required in a file of --config.
//	    Default: catena.dev/v1alpha1
//	kind (HostConfiguration)
//	    Required in a file of --config.
//	    Default: HostConfiguration
//	dataDir (string)
//	    Directory of all state: the embedded etcd, keys, certificates, each stage's
//	    own directory. Catena sets its mode to 0700.
//	    Default: ./data
//	runtimeDir (string)
//	    Directory of the Unix sockets. Its path must be short; the default moves to
//	    the directory for temporary files where it would be too long.
//	    Default: DATA_DIR/run
//	pluginDirs (list of strings)
//	    Directories that are searched for catena-stage-NAME, in this order.
//	    Default: ["./plugins"]
//	watchPlugins (true or false)
//	    Whether a stage is swapped as soon as its binary in a plugin directory, or
//	    that of stages.NAME.binary, is replaced by another.
//	    Default: false
//	holdTimeout (duration)
//	    How long requests wait for the next process of a stage that has died before
//	    they get 503. More than half a minute is of little use: clients have
//	    timeouts of their own.
//	    Default: 10s
//	holdRequests (integer)
//	    How many requests may wait for one such stage; those above get 503 at once.
//	    Default: 1000
//	preShutdownTimeout (duration)
//	    How long the pre-shutdown hooks of the server and of its stages may take
//	    when the server ends.
//	    Default: 10s
//	cpuSchedulingPolicy (batch, other)
//	    How Linux schedules the host and its stages, see sched(7). With `batch`,
//	    where all processors are busy, a thread that wakes up waits instead of
//	    interrupting another one, and a request through several processes costs
//	    less. `other` is what processes have by default. A policy of another kind
//	    that the host was started with stays.
//	    Default: batch
//	log.level (trace, debug, info, warn, error)
//	    Least level of the messages that the host writes.
//	    Default: info
//	log.stageLevel (trace, debug, info, warn, error, auto)
//	    Least level of the messages of the stages, of Kubernetes' code in the host
//	    and of the embedded etcd. `auto` is `warn` for what is Kubernetes' or
//	    etcd's, and `info` for stages of other names than aggregator, core,
//	    extensions and controllers.
//	    Default: auto
//	log.format (text, json, klog, klog-json)
//	    Form of the messages: as `text`, as `json`, or in one of the two formats of
//	    Kubernetes' programs, `klog` and `klog-json`.
//	    Default: text
//	apiserverDefaults (catena, kube-apiserver)
//	    What holds for flags of kube-apiserver that are not set: `catena`, with RBAC
//	    and with certificates and keys that it makes in the data directory, or
//	    `kube-apiserver`, as that has them. With the latter, aggregator, core and
//	    extensions are in the chain without being declared.
//	    Default: catena
//	kubernetesEvents (auto, on, off)
//	    Whether crashes and changes of stages and reloads are written as Events of
//	    Kubernetes in the namespace kube-system, if a stage serves these: `on`,
//	    `off`, or `auto`, which is `on` unless `apiserverDefaults` is
//	    `kube-apiserver`.
//	    Default: auto
//	apiserver.* (value or list of values)
//	    A flag of kube-apiserver by its own name, for the host and for all stages
//	    alike. One element of a list is one use of the flag.
//	store.endpoints (list of strings)
//	    URLs of an external etcd cluster, https://HOST:PORT. The embedded etcd runs
//	    if there are none.
//	store.caFile (string)
//	    Certificates of the authorities that the external cluster's certificates
//	    come from, PEM.
//	store.certFile (string)
//	    Client certificate for the external cluster, PEM.
//	store.keyFile (string)
//	    Key of store.certFile, PEM.
//	store.prefix (string)
//	    What all keys in etcd begin with; etcd-prefix of kube-apiserver.
//	    Default: /registry
//	store.compactionInterval (duration)
//	    Time between two compactions of etcd's history, 0 for none;
//	    etcd-compaction-interval of kube-apiserver.
//	    Default: 5m
//	store.quotaBytes (integer)
//	    Size up to which the embedded etcd may grow, 0 for etcd's default of 2 GiB.
//	    Default: 0
//	stages.*.disabled (true or false)
//	    Whether the stage is left out of the chain. The stage upstream of it then
//	    delegates to its delegate.
//	    Default: false
//	stages.*.delegate (string)
//	    The stage that gets the requests which this one does not serve. The tail of
//	    the chain has none.
//	stages.*.binary (string)
//	    Path of the plugin binary, or `builtin` for the stage of this name that is
//	    in the program of the host itself.
//	    Default: catena-stage-NAME in pluginDirs
//	stages.*.sha256 (string)
//	    SHA-256 of the binary in hexadecimal digits. The stage is not started from a
//	    file with another one.
//	stages.*.lock (required, off)
//	    Whether catena.lock, beside the first file of --config, must have the
//	    stage's file for it to be executed. Catena ships with `off` for the stages
//	    of Kubernetes.
//	    Default: required
//	stages.*.startTimeout (duration)
//	    Time that each step may take in which the stage comes up: launch, check of
//	    its configuration, configuration, preparation and, in a swap, getting ready.
//	    Default: 1m
//	stages.*.livenessTimeout (duration)
//	    How long the stage, or one of its checks of /livez, may not respond before
//	    its process is killed and started again, 0 for ever.
//	    Default: 15s
//	stages.*.drainTimeout (duration)
//	    How long a generation of the stage that has been replaced may go on serving
//	    the requests that it has.
//	    Default: 1m
//	stages.*.drainSpread (duration)
//	    Time over which such a generation ends its watches, so that their clients do
//	    not all connect again at once.
//	    Default: 5s
//	stages.*.required (true or false)
//	    Whether the stage has to come up for the server to start, and /readyz fails
//	    while it is down. What the stage owns gets 503 either way.
//	    Default: true
//	stages.*.standby (true or false)
//	    Whether a second process of the stage is kept ready to take over the moment
//	    the first one dies. It costs the memory of one more process.
//	    Default: false
//	stages.*.rollbackOn (list of strings)
//	    What makes a swap or a reload go back to the previous process of the stage
//	    within its probation, besides the end of the new one: `errors=5%`, for that
//	    share of its requests failing, and `health`, for a health check failing.
//	    With `[]` no process is kept to go back to.
//	    Default: [health] for catena swap and watchPlugins, otherwise []
//	stages.*.probation (duration)
//	    How long rollbackOn applies, and the previous process is kept; `10s` after
//	    `catena swap` and `watchPlugins` if neither of the two keys is set.
//	    Default: 30s
//	stages.*.identity.user (string)
//	    Name of the user as which the stage calls the API server. Catena ships with
//	    that of kube-apiserver for the stages of Kubernetes.
//	    Default: system:catena:stage:NAME
//	stages.*.identity.groups (list of strings)
//	    Groups of that user. Catena ships with those of kube-apiserver for the
//	    stages of Kubernetes.
//	    Default: ["system:catena:stages"]
//	stages.*.grants.claims (list of strings)
//	    Paths of the Kubernetes API that the stage may claim: `/a` is that path,
//	    `/a/**` also everything below it, `/a/*` what is one segment below it. `/**`
//	    is everything. Paths outside of the Kubernetes API need no grant.
//	    Default: []
//	stages.*.grants.rewrite (true or false)
//	    Whether the stage may hand on a request with another method, path or query.
//	    It is authorized anew, for the same user.
//	    Default: false
//	stages.*.grants.delegates (true or false)
//	    Whether the stage may call the stages downstream for more than discovery and
//	    OpenAPI, as its own user.
//	    Default: false
//	stages.*.grants.systemRequests (true or false)
//	    Whether the stage gets requests of the user system:apiserver, which are
//	    those of the host itself and of Kubernetes' stages, for paths that it needs
//	    a grant to claim. They bypass it otherwise.
//	    Default: false
//	stages.*.grants.store (none, own, registry)
//	    What the stage may use of the store: nothing, keys of its own, or all of
//	    Kubernetes' registry.
//	    Default: none
//	stages.*.grants.keys (true or false)
//	    Whether the stage gets the flags of kube-apiserver that name private keys,
//	    if it reads them.
//	    Default: false
//	stages.*.grants.network (true or false)
//	    Whether the stage may make network connections of its own.
//	    Default: false
//	stages.*.grants.files (list of strings)
//	    Paths of files and directories that the stage may read beyond its binary and
//	    its data directory. One that ends with `:rw` it may also write.
//	    Default: []
//	stages.*.limits.memory (quantity)
//	    Memory, such as 512Mi, at which a process of the stage is killed and another
//	    started.
//	    Default: none
//	stages.*.limits.memorySoft (quantity)
//	    Memory at which the stage is swapped to a fresh process of the same binary.
//	    Sets `GOMEMLIMIT` in the stage's environment to 90 % of it, unless `env`
//	    does.
//	    Default: 80 % of memory
//	stages.*.limits.openFiles (integer)
//	    Files and sockets that a process of the stage may have open,
//	    `RLIMIT_NOFILE`.
//	    Default: the host's own, if isolated without keys and store: registry at
//	    most 16384
//	stages.*.limits.cpu (quantity)
//	    Processors, such as 0.5 or 2, that a process of the stage may use together
//	    with all that it has started. It takes a [cgroup](operations.md#limits).
//	    Default: none
//	stages.*.limits.pids (integer)
//	    Processes and threads of a process of the stage and of all that it has
//	    started. It takes a [cgroup](operations.md#limits).
//	    Default: none
//	stages.*.env.* (value)
//	    A variable for the environment of the stage's process, which otherwise gets
//	    a short list of the host's.
//	stages.*.isolation (auto, required, off)
//	    How the kernel keeps the stage from what it was not granted: `auto` by all
//	    means of this machine, `required` by all means or not at all, `off` by none.
//	    See [Isolation](security.md#isolation).
//	    Default: auto
//	stages.*.apiserver.* (value or list of values)
//	    A flag of kube-apiserver for this stage alone, in the place of
//	    `apiserver.FLAG`; an empty list is none. A stage of another release may know
//	    flags that the host does not, or lack some.
//	stages.*.config (mapping)
//	    The stage's own configuration, with keys as the stage defines them.
package config
