// Package grants decides what a stage may do: it compares what a stage declares to need
// with what the operator grants it, in stages.NAME.grants of the configuration.
package grants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Grants are what an operator grants a stage. The zero value allows what every stage may do:
// to claim and serve paths outside of the Kubernetes API, to decline, to hand on
// requests as they came, to ask delegates for discovery and OpenAPI, and to call the API
// with its own identity.
type Grants struct {
	// Claims are patterns of the paths of the Kubernetes API that the stage may claim.
	Claims []claim.Claim `json:"claims,omitempty"`
	// Rewrite allows it to hand on requests with another method, path or query.
	Rewrite bool `json:"rewrite,omitempty"`
	// Delegates allows it to call delegates for anything.
	Delegates bool `json:"delegates,omitempty"`
	// SystemRequests lets it have requests of the user system:apiserver, which are those of the
	// host and of Kubernetes' stages, at paths of the Kubernetes API.
	SystemRequests bool `json:"systemRequests,omitempty"`
	// Store is what it may use of the store.
	Store Store `json:"store,omitempty"`
	// Keys allows it to have flags that name private keys.
	Keys bool `json:"keys,omitempty"`
	// Network allows connections of its own.
	Network bool `json:"network,omitempty"`
	// Files are paths that it may read; one that ends with ":rw" it may also write.
	Files []string `json:"files,omitempty"`
}

// Store is what a stage may use of the store. The values are those of the configuration.
type Store string

const (
	// NoStore is no etcd at all.
	NoStore Store = ""
	// OwnKeys is keys of the stage's own.
	OwnKeys Store = "own"
	// Registry is all keys of Kubernetes' registry.
	Registry Store = "registry"
)

func storeOf(s stagev1.Needs_Store) Store {
	switch s {
	case stagev1.Needs_OWN:
		return OwnKeys
	case stagev1.Needs_REGISTRY:
		return Registry
	}
	return NoStore
}

// allows reports whether one that is granted s has what it needs.
func (s Store) allows(need Store) bool { return need == NoStore || s == need || s == Registry }

// Normal returns g with nil in place of empty lists, so that equal grants are equal values.
func (g Grants) Normal() Grants {
	if len(g.Claims) == 0 {
		g.Claims = nil
	}
	if len(g.Files) == 0 {
		g.Files = nil
	}
	return g
}

// All returns the grants of a stage that may do everything that the host can prevent.
func All() Grants {
	return Grants{
		Claims: []claim.Claim{claim.Prefix("/")}, Rewrite: true, Delegates: true, SystemRequests: true,
		Store: Registry, Keys: true, Network: true,
	}
}

// AllowsClaim reports whether the stage may make a claim.
func (g Grants) AllowsClaim(c claim.Claim) bool {
	return !NeedsGrant(c) || slices.ContainsFunc(g.Claims, func(granted claim.Claim) bool { return granted.Contains(c) })
}

// Kubernetes reports whether the stage may have paths of the Kubernetes API.
func (g Grants) Kubernetes() bool { return slices.ContainsFunc(g.Claims, NeedsGrant) }

// Trusted reports whether the stage is as powerful as the server itself: it may have the keys, or all of the store.
func (g Grants) Trusted() bool { return g.Keys || g.Store == Registry }

// Check returns an error that says what a stage needs and is not granted, and what to add
// to its configuration.
func (g Grants) Check(stage string, needs *stagev1.Needs) error {
	missing, all := g.compare(needs)
	if len(missing) == 0 {
		return nil
	}
	return &MissingError{Stage: stage, Needs: missing, Add: all.String()}
}

// CheckClaims is Check for the claims that a stage makes.
func (g Grants) CheckClaims(stage string, claims []claim.Claim) error {
	needs := &stagev1.Needs{}
	for _, c := range claims {
		if c.Validate() == nil && !g.AllowsClaim(c) {
			needs.Claims = append(needs.Claims, stagev1.EncodeClaims([]claim.Claim{c})...)
		}
	}
	return g.Check(stage, needs)
}

// MissingError is what a stage needs and is not granted.
type MissingError struct {
	Stage string
	// Needs says what is missing, in words.
	Needs []string
	// Add is the value of stages.STAGE.grants with which nothing is missing, as YAML.
	Add string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("stages.%s.grants: the stage needs %s: grant it with \"grants: %s\" below stages.%s, if you trust its binary that far",
		e.Stage, strings.Join(e.Needs, ", "), e.Add, e.Stage)
}

// compare returns what needs has beyond g, in words, and g with all of that added.
func (g Grants) compare(needs *stagev1.Needs) (missing []string, all Grants) {
	all = g
	all.Claims, all.Files = slices.Clone(g.Claims), slices.Clone(g.Files)
	var claims []string
	for _, c := range stagev1.DecodeClaims(needs.GetClaims()) {
		if !all.AllowsClaim(c) {
			claims, all.Claims = append(claims, c.String()), append(all.Claims, c)
		}
	}
	if len(claims) > 0 {
		missing = append(missing, "to claim "+strings.Join(claims, ", "))
	}
	for _, need := range []struct {
		needed  bool
		granted *bool
		words   string
	}{
		{needs.GetRewrite(), &all.Rewrite, "to hand on requests with another method, path or query (rewrite)"},
		{needs.GetDelegates(), &all.Delegates, "to call delegates"},
		{needs.GetSystemRequests(), &all.SystemRequests, "to get requests of the server itself (systemRequests)"},
		{needs.GetKeys(), &all.Keys, "private keys of the server (keys)"},
		{needs.GetNetwork(), &all.Network, "network connections"},
	} {
		if need.needed && !*need.granted {
			missing, *need.granted = append(missing, need.words), true
		}
	}
	if need := storeOf(needs.GetStore()); !all.Store.allows(need) {
		missing, all.Store = append(missing, storeWords[need]), need
	}
	if files := notIn(needs.GetFiles(), all.Files); len(files) > 0 {
		missing, all.Files = append(missing, "the files "+strings.Join(files, ", ")), append(all.Files, files...)
	}
	return missing, all
}

var storeWords = map[Store]string{
	OwnKeys:  "keys of its own in the store",
	Registry: "all of Kubernetes' registry in the store",
}

// Of returns the grants with which a stage has exactly what it declares to need.
func Of(needs *stagev1.Needs) Grants {
	_, g := Grants{}.compare(needs)
	return g
}

// notIn returns the elements of list that others lacks.
func notIn(list, others []string) []string {
	var missing []string
	for _, s := range list {
		if !slices.Contains(others, s) && !slices.Contains(missing, s) {
			missing = append(missing, s)
		}
	}
	return missing
}

// String returns the grants as the configuration has them, in YAML on one line; {} if
// there are none.
func (g Grants) String() string {
	var keys []string
	list := func(key string, values []string) {
		if len(values) > 0 {
			keys = append(keys, fmt.Sprintf("%s: [%s]", key, strings.Join(quoted(values), ", ")))
		}
	}
	list("claims", claim.Texts(g.Claims))
	for _, b := range []struct {
		key string
		set bool
	}{{"rewrite", g.Rewrite}, {"delegates", g.Delegates}, {"systemRequests", g.SystemRequests}} {
		if b.set {
			keys = append(keys, b.key+": true")
		}
	}
	if g.Store != NoStore {
		keys = append(keys, "store: "+string(g.Store))
	}
	if g.Keys {
		keys = append(keys, "keys: true")
	}
	if g.Network {
		keys = append(keys, "network: true")
	}
	list("files", g.Files)
	return "{" + strings.Join(keys, ", ") + "}"
}

func quoted(values []string) []string {
	q := make([]string, len(values))
	for i, v := range values {
		q[i] = fmt.Sprintf("%q", v)
	}
	return q
}

// CheckWords is Check for what a stage was known to need, as Words tells it. What is not
// understood, since a later version of Catena has written it, is left to Check.
func (g Grants) CheckWords(stage string, words []string) error {
	needs := &stagev1.Needs{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, " ")
		switch key {
		case "claims":
			if c, err := claim.Parse(value); err == nil {
				needs.Claims = append(needs.Claims, stagev1.EncodeClaims([]claim.Claim{c})...)
			}
		case "rewrite":
			needs.Rewrite = true
		case "delegates":
			needs.Delegates = true
		case "systemRequests":
			needs.SystemRequests = true
		case "keys":
			needs.Keys = true
		case "network":
			needs.Network = true
		case "store":
			needs.Store = map[Store]stagev1.Needs_Store{OwnKeys: stagev1.Needs_OWN, Registry: stagev1.Needs_REGISTRY}[Store(value)]
		case "files":
			needs.Files = append(needs.Files, value)
		}
	}
	return g.Check(stage, needs)
}

// Words returns the grants as a list of short texts, each KEY or KEY VALUE, sorted.
func (g Grants) Words() []string {
	var words []string
	for _, c := range g.Claims {
		words = append(words, "claims "+c.String())
	}
	for word, set := range map[string]bool{
		"rewrite": g.Rewrite, "delegates": g.Delegates, "systemRequests": g.SystemRequests, "keys": g.Keys, "network": g.Network,
		"store " + string(g.Store): g.Store != NoStore,
	} {
		if set {
			words = append(words, word)
		}
	}
	for _, file := range g.Files {
		words = append(words, "files "+file)
	}
	slices.Sort(words)
	return words
}
