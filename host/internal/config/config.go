package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/lockfile"
)

// Config is a valid configuration with all defaults filled in. It is not to be
// changed.
type Config struct {
	APIVersion string   `koanf:"apiVersion"`
	Kind       string   `koanf:"kind"`
	DataDir    string   `koanf:"dataDir"`
	RuntimeDir string   `koanf:"runtimeDir"` // empty: the host chooses
	PluginDirs []string `koanf:"pluginDirs"`
	// HoldTimeout is how long requests wait for a stage that has died.
	HoldTimeout time.Duration `koanf:"holdTimeout"`
	// HoldRequests is how many requests may wait for one such stage.
	HoldRequests int64 `koanf:"holdRequests"`
	// PreShutdownTimeout is how long the pre-shutdown hooks of the server may take.
	PreShutdownTimeout time.Duration `koanf:"preShutdownTimeout"`
	// CPUSchedulingPolicy is one of those of package scheduling.
	CPUSchedulingPolicy string `koanf:"cpuSchedulingPolicy"`
	// WatchPlugins is set if a changed binary swaps its stage.
	WatchPlugins bool  `koanf:"watchPlugins"`
	Log          Log   `koanf:"log"`
	Store        Store `koanf:"store"`
	// KubernetesEvents is EventsAuto, EventsOn or EventsOff.
	KubernetesEvents string `koanf:"kubernetesEvents"`
	// APIServerDefaults is CatenaDefaults or KubernetesDefaults.
	APIServerDefaults string `koanf:"apiserverDefaults"`
	// APIServer has, for each flag of kube-apiserver by name, its values, one for
	// each use of the flag. Neither names nor values have been checked.
	APIServer map[string][]string `koanf:"apiserver"`
	// Stages are the stages of the chain, without those that are disabled.
	Stages map[string]Stage `koanf:"stages"`

	// Order has the names of the stages from the head of the chain to its tail.
	Order []string `koanf:"-"`
	// Disabled has the names of the disabled stages, sorted.
	Disabled []string `koanf:"-"`
	// Files are those of Options.
	Files []string `koanf:"-"`

	// locks has the values of lock of all stages that a layer knows, disabled ones and those
	// that are not declared included.
	locks    map[string]string
	settings []Setting
	origins  map[string]*layer
	hidden   map[string]bool
	loosened *Loosened
}

// Log is what the host writes to its log, and how.
type Log struct {
	Level      string `koanf:"level"`
	StageLevel string `koanf:"stageLevel"`
	Format     string `koanf:"format"`
}

// LevelAuto is the value of Log.StageLevel with which Kubernetes' code logs what matters to operators, and stages of
// others all that they say.
const LevelAuto = "auto"

// LibraryLevel is the level of Kubernetes' code and etcd in the host.
func (l Log) LibraryLevel() string {
	if l.StageLevel == LevelAuto {
		return "warn"
	}
	return l.StageLevel
}

// LevelOf is the level of a stage.
func (l Log) LevelOf(stage string) string {
	if l.StageLevel == LevelAuto && !slices.Contains(BuiltinStages(), stage) {
		return "info"
	}
	return l.LibraryLevel()
}

// Store is where the API server keeps its objects. The embedded etcd is used if
// there are no endpoints.
type Store struct {
	Endpoints          []string      `koanf:"endpoints"`
	CAFile             string        `koanf:"caFile"`
	CertFile           string        `koanf:"certFile"`
	KeyFile            string        `koanf:"keyFile"`
	Prefix             string        `koanf:"prefix"`
	CompactionInterval time.Duration `koanf:"compactionInterval"` // 0: never
	QuotaBytes         int64         `koanf:"quotaBytes"`         // 0: etcd's default
}

// Stage is one link of the chain.
type Stage struct {
	Name string `koanf:"-"`
	// Disabled takes the stage out of the chain. No Stage of a valid Config is disabled.
	Disabled bool `koanf:"disabled"`
	// Delegate is the next stage that is not disabled. It is empty for the tail.
	Delegate string `koanf:"delegate"`
	Binary   string `koanf:"binary"` // empty: catena-stage-NAME in PluginDirs
	Sha256   string `koanf:"sha256"` // lower case; empty: any
	// Lock is "required" or "off", see Config.NeedsLock.
	Lock         string        `koanf:"lock"`
	StartTimeout time.Duration `koanf:"startTimeout"`
	// LivenessTimeout is 0 if the stage may fail to respond for ever.
	LivenessTimeout time.Duration `koanf:"livenessTimeout"`
	DrainTimeout    time.Duration `koanf:"drainTimeout"`
	DrainSpread     time.Duration `koanf:"drainSpread"`
	// Watches is "resume", "verify" or "passthrough".
	Watches string `koanf:"watches"`
	// Required is set if the server is not ready while the stage is down.
	Required bool `koanf:"required"`
	Standby  bool `koanf:"standby"`
	// RollbackOn has the elements of Rollback as they are written.
	RollbackOn []string      `koanf:"rollbackOn"`
	Rollback   Rollback      `koanf:"-"`
	Probation  time.Duration `koanf:"probation"`
	Identity   Identity      `koanf:"identity"`
	Grants     Grants        `koanf:"grants"`
	Limits     Limits        `koanf:"limits"`
	// Isolation is a name of isolation.Modes.
	Isolation string `koanf:"isolation"`
	// APIServer has the flags of kube-apiserver that differ for this stage, as Config.APIServer has them. One without
	// values is not set.
	APIServer map[string][]string `koanf:"apiserver"`
	Env       map[string]string   `koanf:"env"`
	Config    map[string]any      `koanf:"config"` // fit for JSON; nil: none
}

// Identity is the user as which a stage calls the API server.
type Identity struct {
	User   string   `koanf:"user"`
	Groups []string `koanf:"groups"`
}

// Grants are what a stage may do beyond what every stage may.
type Grants struct {
	Claims         []string `koanf:"claims"` // in the text form of claims
	Rewrite        bool     `koanf:"rewrite"`
	Delegates      bool     `koanf:"delegates"`
	SystemRequests bool     `koanf:"systemRequests"`
	Store          string   `koanf:"store"`
	Keys           bool     `koanf:"keys"`
	Network        bool     `koanf:"network"`
	Files          []string `koanf:"files"`
}

// Options are the layers above the defaults, from the lowest to the highest.
type Options struct {
	// Files are the paths of --config. Files in the directory conf.d beside the last
	// one follow them.
	Files []string
	// Env is the environment, as os.Environ returns it.
	Env []string
	// Set has KEY=VALUE for each --set.
	Set []string
	// Flags are the flags that stand for a key.
	Flags []CommandFlag
}

// CommandFlag is a flag of the command line that stands for a key.
type CommandFlag struct {
	Name       string // as the user writes it, such as --data-dir
	Key, Value string
}

// Load reads all layers and merges them. The error joins a *Problem for everything that is
// wrong; there is no configuration then.
func Load(o Options) (*Config, error) {
	c, err := Inspect(o)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Inspect is Load for callers that look for further mistakes. With an error it also returns
// a configuration of the valid values: see Hides, and it has no Order if the stages make no
// chain. It is nil if a file could not be read.
func Inspect(o Options) (*Config, error) {
	p := &problems{}
	return load(fileLayers(o.Files, p), o, p)
}

func load(files []*layer, o Options, p *problems) (*Config, error) {
	root := newSchema(Keys())
	flags := append(setLayers(o.Set, p), flagLayers(o.Flags)...)
	for _, l := range slices.Concat(files, flags) {
		normalize(l, root, p)
	}
	names, declared := declaredStages(files, flags), declaresChain(files, flags)
	if !declared {
		names = slices.Compact(slices.Sorted(slices.Values(append(names, BuiltinStages()...))))
	}
	env := envLayers(o.Env, names, p)
	for _, l := range env {
		normalize(l, root, p)
	}
	m := newMerger(root, p)
	for _, l := range slices.Concat(files, env, flags) {
		if err := m.add(l); err != nil {
			return nil, fmt.Errorf("merge %s: %w", l.source, err)
		}
	}
	for _, fill := range []func(*merger) *layer{kubernetes, chainOf(declared), shipped, defaults} {
		l := fill(m)
		if err := m.add(l); err != nil {
			return nil, fmt.Errorf("merge %s: %w", l.source, err)
		}
	}
	c, err := m.config()
	if c != nil {
		c.Files = slices.Clone(o.Files)
		c.loosened = loosened(slices.Concat(files, env, flags), c.APIServerDefaults == KubernetesDefaults)
	}
	return c, err
}

// declaredStages returns the names of the stages that files and flags declare, sorted.
func declaredStages(files, flags []*layer) []string {
	names := map[string]bool{}
	for i, l := range slices.Concat(files, flags) {
		for name, stage := range asMap(l.values["stages"]) {
			switch {
			case stage != nil:
				names[name] = true
			case i < len(files):
				delete(names, name)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// config decodes the merged values, and checks them against each other.
func (m *merger) config() (*Config, error) {
	c := &Config{}
	err := m.ko.UnmarshalWithConf("", c, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{Result: c, ErrorUnused: true},
	})
	if err != nil {
		return nil, fmt.Errorf("decode merged configuration: %w", err)
	}
	for name, s := range c.Stages {
		s.Name, s.Sha256 = name, strings.ToLower(s.Sha256)
		s.Rollback, _ = ParseRollback(s.RollbackOn) // the key's check has reported errors
		c.Stages[name] = s
	}
	c.locks = locksOf(c)
	m.validate(c)
	c.settings, c.origins, c.hidden = m.settings(), m.origins, m.problems.hidden
	err = m.problems.err()
	if m.problems.unread {
		return nil, err
	}
	return c, err
}

// Loosened is the layer that takes back the authorization that an earlier one has set; nil if none does.
func (c *Config) Loosened() *Loosened { return c.loosened }

// Hides reports, for a configuration with errors, whether the intended value of a key is
// unknown because its value, or that of a section around it, is wrong or misspelt.
func (c *Config) Hides(key string) bool {
	path := undotted(key)
	for n := len(path); n > 0; n-- {
		if c.hidden[dotted(path[:n])] {
			return true
		}
	}
	return false
}

// NeedsLock reports whether the file of a stage, which need not be declared, may be executed
// only if the lock file has it.
func (c *Config) NeedsLock(stage string) bool { return c.locks[stage] != lockOff }

// LocksOthers reports whether only Catena itself exempts a stage from the lock: that is about what comes with the
// host, and not about another file of the stage's name in a plugin directory.
func (c *Config) LocksOthers(stage string) bool {
	return !c.NeedsLock(stage) && !c.IsSet("stages."+stage+".lock") && c.Stages[stage].Binary == ""
}

// LockFile returns the path of the file that says which binaries may be executed. It is beside
// the first of Files, and empty without files.
func (c *Config) LockFile() string {
	if len(c.Files) == 0 {
		return ""
	}
	return filepath.Join(filepath.Dir(c.Files[0]), lockfile.Name)
}

// Effective returns every value of the configuration with the layer that it came
// from, by key.
func (c *Config) Effective() []Setting { return slices.Clone(c.settings) }

// Chain returns the stages from head to tail.
func (c *Config) Chain() []Stage {
	stages := make([]Stage, len(c.Order))
	for i, name := range c.Order {
		stages[i] = c.Stages[name]
	}
	return stages
}

// Where returns where the value of a dotted key comes from, or that of the nearest
// section around it: "FILE:LINE", "env NAME", "--set KEY", "--FLAG", or "default". It is for
// mistakes that only show when the configuration is used.
func (c *Config) Where(key string) string {
	path := undotted(key)
	for n := len(path); n > 0; n-- {
		if l := c.origins[dotted(path[:n])]; l != nil {
			return Setting{Source: l.source, Line: l.line(path)}.Where()
		}
	}
	return defaultSource
}

// IsSet reports whether the operator has given a value for the dotted key itself.
func (c *Config) IsSet(key string) bool {
	l := c.origins[key]
	return l != nil && !l.builtin
}

func (c *Config) declarations() []chain.Declaration {
	decls := make([]chain.Declaration, 0, len(c.Stages))
	for name, s := range c.Stages {
		decls = append(decls, chain.Declaration{Name: name, Delegate: s.Delegate})
	}
	return decls
}
