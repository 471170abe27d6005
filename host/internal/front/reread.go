package front

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/catena-dev/catena/host/internal/grants"
)

// auditPolicy is the audit policy, which can be read again while the server runs.
type auditPolicy struct {
	file    string
	current atomic.Pointer[auditRules]
}

type auditRules struct {
	audit.PolicyRuleEvaluator
	digest digest
	// omits reports whether a rule omits managed fields.
	omits bool
}

// newAuditPolicy reads the policy; without a file it returns nil.
func newAuditPolicy(file string) (*auditPolicy, error) {
	if file == "" {
		return nil, nil
	}
	p := &auditPolicy{file: file}
	rules, err := p.read()
	p.current.Store(rules)
	return p, err
}

func (p *auditPolicy) read() (*auditRules, error) {
	b, err := os.ReadFile(p.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key("audit-policy-file"), err)
	}
	parsed, err := policy.LoadPolicyFromBytes(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", key("audit-policy-file"), p.file, err)
	}
	omits := parsed.OmitManagedFields || slices.ContainsFunc(parsed.Rules, func(r auditapi.PolicyRule) bool {
		return r.OmitManagedFields != nil && *r.OmitManagedFields
	})
	return &auditRules{PolicyRuleEvaluator: policy.NewPolicyRuleEvaluator(parsed), digest: sha256.Sum256(b), omits: omits}, nil
}

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (p *auditPolicy) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	return p.current.Load().EvaluatePolicyRule(a)
}

// omitsManagedFields reports whether managed fields are omitted from the event of a request.
// It evaluates the policy again, since audit.AuditContext does not export the result.
func (p *auditPolicy) omitsManagedFields(ctx context.Context, ac *audit.AuditContext) bool {
	rules := p.current.Load()
	if !rules.omits {
		return false
	}
	attributes, err := originalAttributes(ctx, ac)
	return err == nil && rules.EvaluatePolicyRule(attributes).OmitManagedFields
}

type digest = [sha256.Size]byte

// contents returns the digests of the files that the operator has named and that Kubernetes' code reads once, by flag
// and path.
func (f *Flags) contents() map[[2]string]digest {
	all := map[[2]string]digest{}
	for _, flag := range grants.ClassifiedFlags() {
		if !f.operator[flag] || !grants.FlagIs(flag, grants.FlagOnce) {
			continue
		}
		if flag == "encryption-provider-config" && f.Value("encryption-provider-config-automatic-reload") == "true" {
			continue
		}
		for _, path := range f.values[flag] {
			b, err := os.ReadFile(path)
			if err == nil {
				all[[2]string{flag, path}] = sha256.Sum256(b)
			}
		}
	}
	return all
}

// Reread is the present content of the files that flags name.
type Reread struct {
	// Changed are the keys of the flags whose files Apply puts into effect.
	Changed []string
	// Stale are the keys of the flags whose files have changed since the server was started
	// and which only a restart applies.
	Stale []string

	front *Frontend
	rules *auditRules
}

// Reread reads the files that flags name and that the server does not follow by itself.
// It changes nothing; an error names the file that is invalid.
func (f *Frontend) Reread() (*Reread, error) {
	r := &Reread{front: f}
	now := f.opts.Flags.contents()
	for file, before := range f.contents {
		if after, ok := now[file]; (!ok || after != before) && !slices.Contains(r.Stale, key(file[0])) {
			r.Stale = append(r.Stale, key(file[0]))
		}
	}
	slices.Sort(r.Stale)
	if f.audit == nil {
		return r, nil
	}
	var err error
	r.rules, err = f.audit.read()
	if err == nil && r.rules.digest != f.audit.current.Load().digest {
		r.Changed = append(r.Changed, key("audit-policy-file"))
	}
	return r, err
}

// Apply puts the files of Changed into effect.
func (r *Reread) Apply() {
	if r.rules != nil {
		r.front.audit.current.Store(r.rules)
	}
}
