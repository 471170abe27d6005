// Package fairness has the requests that stages make in their own name wait for each other, and not those of users: they have a
// priority level and a flow schema of their own in Kubernetes' priority and fairness.
package fairness

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

const (
	name  = "catena-stages"        // of the priority level and of the flow schema
	group = "system:catena:stages" // of stages' users by default

	precedence = 1000 // after Kubernetes' own components, before service accounts and users
	shares     = 10   // of the 245 that Kubernetes' levels have
	pause      = 10 * time.Second
	timeout    = 10 * time.Second
)

// Level makes the priority level and the flow schema when they are first wanted. What is there already is the
// operator's, and stays as it is.
type Level struct {
	client client.FlowcontrolV1Interface
	log    hclog.Logger
	wanted chan struct{}
	made   atomic.Bool
}

// New returns a Level. Run has to be called for it to do something.
func New(client client.FlowcontrolV1Interface, log hclog.Logger) *Level {
	return &Level{client: client, log: log, wanted: make(chan struct{}, 1)}
}

// Want notes that a stage makes a request in its own name. It never waits.
func (l *Level) Want() {
	if l.made.Load() {
		return
	}
	select {
	case l.wanted <- struct{}{}:
	default:
	}
}

// Run makes both when they are wanted while ready returns true, and returns then, or when ctx ends. After a failure it
// waits until they are wanted again.
func (l *Level) Run(ctx context.Context, ready func() bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wanted:
		}
		if ready() {
			err := l.make(ctx)
			if err == nil {
				l.made.Store(true)
				return
			}
			if ctx.Err() != nil {
				return
			}
			l.log.Warn("requests of stages have no priority level of their own yet", "name", name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (l *Level) make(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := l.client.PriorityLevelConfigurations().Create(ctx, level(), metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("priority level: %w", err)
	}
	if _, err := l.client.FlowSchemas().Create(ctx, schema(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("flow schema: %w", err)
	}
	return nil
}

// level lends half of its seats, and borrows as many as it has.
func level() *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(shares)),
				LendablePercent:          new(int32(50)),
				BorrowingLimitPercent:    new(int32(100)),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 6, QueueLengthLimit: 50},
				},
			},
		},
	}
}

func schema() *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: rbacv1.GroupKind, Group: &flowcontrolv1.GroupSubject{Name: group}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all,
					Namespaces: all, ClusterScope: true}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}
