package config

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/catena-dev/catena/host/internal/suggest"
)

const (
	envPrefix = "CATENA_"
	// stagePrefix begins the variables of the protocol between host and stages.
	stagePrefix = "CATENA_STAGE_"
	flagPrefix  = "CATENA_APISERVER_"
	// filesVariable has the files of the configuration, and is read by the commands.
	filesVariable = "CATENA_CONFIG"
	// binariesVariable has the programs that tests run, and is theirs.
	binariesVariable = "CATENA_BIN"
	// stagesPrefix begins the variables of the keys of stages.
	stagesPrefix = "CATENA_STAGES_"
)

// envLayers returns a layer for each variable of environ that is a key of the
// configuration, by name. Only stages that another layer declares have variables:
// their names would be ambiguous otherwise.
func envLayers(environ, stages []string, p *problems) []*layer {
	vars := variables(environ)
	names := envNames(stages)
	var layers []*layer
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		switch path := envPath(name, names, stages); {
		case path == nil:
			unknownVariable(name, names, stages, p)
		case vars[name] != "":
			layers = append(layers, textLayer("env "+name, path, vars[name]))
		}
	}
	return layers
}

// variables returns what begins with CATENA_ but is neither of the stage protocol nor the files. Of a
// variable that is there twice, the first counts, as in os.Getenv.
func variables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		ours := strings.HasPrefix(name, envPrefix) && !strings.HasPrefix(name, stagePrefix) &&
			name != filesVariable && name != binariesVariable
		if _, twice := vars[name]; !twice && ours {
			vars[name] = value
		}
	}
	dropServiceLinks(vars)
	return vars
}

// envNames maps the variables of all keys without a name of the user's choice at
// their end to the paths of these keys.
func envNames(stages []string) map[string][]string {
	names := map[string][]string{}
	for _, k := range Keys() {
		path := strings.Split(k.Path, ".")
		switch {
		case path[len(path)-1] == "*":
		case path[0] == "stages":
			for _, stage := range stages {
				own := slices.Clone(path)
				own[1] = stage
				names[envVar(own)] = own
			}
		default:
			names[envVar(path)] = path
		}
	}
	return names
}

// envVar is the variable for a path: stages.core.startTimeout is
// CATENA_STAGES_CORE_START_TIMEOUT.
func envVar(path []string) string {
	words := make([]string, len(path))
	for i, name := range path {
		words[i] = upperSnake(name)
	}
	return envPrefix + strings.Join(words, "_")
}

func upperSnake(name string) string {
	var out strings.Builder
	for _, r := range name {
		switch {
		case unicode.IsUpper(r):
			out.WriteByte('_')
		case r == '-':
			r = '_'
		}
		out.WriteRune(unicode.ToUpper(r))
	}
	return out.String()
}

// envPath returns the path that a variable stands for, nil if it stands for no path.
func envPath(name string, names map[string][]string, stages []string) []string {
	if path, ok := names[name]; ok {
		return path
	}
	if flag, ok := strings.CutPrefix(name, flagPrefix); ok && flag != "" {
		return []string{"apiserver", strings.ToLower(strings.ReplaceAll(flag, "_", "-"))}
	}
	var path []string
	for _, stage := range stages { // the longest name that fits wins
		flag, ok := strings.CutPrefix(name, envVar([]string{"stages", stage, "apiserver"})+"_")
		if ok && flag != "" && (path == nil || len(stage) > len(path[1])) {
			path = []string{"stages", stage, "apiserver", strings.ToLower(strings.ReplaceAll(flag, "_", "-"))}
		}
		rest, ok := strings.CutPrefix(name, envVar([]string{"stages", stage, "env"})+"_")
		if ok && rest != "" && (path == nil || len(stage) > len(path[1])) {
			path = []string{"stages", stage, "env", rest}
		}
	}
	return path
}

func unknownVariable(name string, names map[string][]string, stages []string, p *problems) {
	l := &layer{source: "env " + name}
	if strings.HasPrefix(name, stagesPrefix) && !slices.ContainsFunc(stages, func(stage string) bool {
		return strings.HasPrefix(name, envVar([]string{"stages", stage})+"_")
	}) {
		if !p.incomplete { // else the stage's declaration may be what is missing
			p.add(l, nil, "unknown variable; the environment reaches the stages that files and flags declare: %s",
				strings.Join(stages, ", "))
		}
		return
	}
	bare := strings.TrimPrefix(name, envPrefix)
	var known []string
	for _, candidate := range slices.Sorted(maps.Keys(names)) {
		known = append(known, strings.TrimPrefix(candidate, envPrefix))
	}
	if best, ok := suggest.Nearest(bare, known); ok {
		p.add(l, nil, "unknown variable (did you mean %s%s?)", envPrefix, best)
		p.hide(names[envPrefix+best])
		return
	}
	p.add(l, nil, "unknown variable; no key of the configuration has this name")
}

// dropServiceLinks removes what Kubernetes puts into the environment of each
// container for a Service whose name begins with "catena".
func dropServiceLinks(vars map[string]string) {
	for name := range vars {
		service, ok := strings.CutSuffix(name, "_SERVICE_HOST")
		if _, port := vars[service+"_SERVICE_PORT"]; !ok || !port {
			continue
		}
		maps.DeleteFunc(vars, func(name, _ string) bool {
			link, ok := strings.CutPrefix(name, service)
			return ok && (link == "_SERVICE_HOST" || strings.HasPrefix(link+"_", "_SERVICE_PORT_") ||
				strings.HasPrefix(link+"_", "_PORT_"))
		})
	}
}
