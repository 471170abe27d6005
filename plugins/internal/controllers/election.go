package controllers

import (
	"context"
	"errors"
	"fmt"
	"os"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/utils/ptr"
)

// lead runs the controllers while the process has the lease. It returns when they have been stopped, and an error if the lease was lost.
func (m *manager) lead() error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of the machine: %w", err)
	}
	identity := host + "_" + string(uuid.NewUUID())
	for again := true; again; {
		if again, err = m.elect(identity); err != nil {
			return err
		}
	}
	return nil
}

// elect is lead, but returns again as true when another process has given up the lease: candidates look at it now and then only.
func (m *manager) elect(identity string) (again bool, _ error) {
	e := m.config.ComponentConfig.Generic.LeaderElection
	lock, err := resourcelock.NewFromKubeconfig(e.ResourceLock, e.ResourceNamespace, e.ResourceName, resourcelock.ResourceLockConfig{
		Identity:      identity,
		EventRecorder: m.config.EventRecorder,
	}, m.config.Kubeconfig, e.RenewDeadline.Duration)
	if err != nil {
		return false, fmt.Errorf("lease: %w", err)
	}
	acquired, over, other := make(chan context.Context, 1), make(chan struct{}), make(chan struct{}, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   e.LeaseDuration.Duration,
		RenewDeadline:   e.RenewDeadline.Duration,
		RetryPeriod:     e.RetryPeriod.Duration,
		Name:            e.ResourceName,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { acquired <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != identity {
					send(other)
				}
			},
		},
	})
	if err != nil {
		return false, fmt.Errorf("lease: %w", err)
	}
	m.checks.follow(elector)
	// The lease is kept until the controllers have ended, also if the stage has been stopped.
	election, release := context.WithCancel(context.WithoutCancel(m.stopping))
	go func() {
		defer close(over)
		elector.Run(election)
	}()
	leading, again := m.compete(election, e, acquired, other)
	if leading != nil {
		err = m.run(leading)
	}
	lost := leading != nil && leading.Err() != nil && m.stopping.Err() == nil
	release()
	<-over
	switch {
	case lost && err != nil:
		err = fmt.Errorf("the lease was lost, and %w", err)
	case lost:
		err = errors.New("the lease was lost")
	}
	return again, err
}

// compete waits until the process has the lease, until another one has given it up, or until the controllers are to stop.
func (m *manager) compete(ctx context.Context, e componentbaseconfig.LeaderElectionConfiguration, acquired <-chan context.Context, other <-chan struct{}) (leading context.Context, again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var given <-chan struct{}
	for {
		select {
		case <-other:
			other, given = nil, m.givenUp(ctx, e)
		case leading := <-acquired:
			return leading, false
		case <-given:
			return nil, true
		case <-m.stopping.Done():
			return nil, false
		}
	}
}

// givenUp returns a channel to which is sent when the lease is free.
func (m *manager) givenUp(ctx context.Context, e componentbaseconfig.LeaderElectionConfiguration) <-chan struct{} {
	given := make(chan struct{}, 1)
	look := func(object any) {
		lease, ok := object.(*coordinationv1.Lease)
		if ok && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			send(given)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(m.config.Client.CoordinationV1().RESTClient(), "leases",
			e.ResourceNamespace, fields.OneTermEqualSelector("metadata.name", e.ResourceName)),
		ObjectType: &coordinationv1.Lease{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, now any) { look(now) }},
	})
	m.running.Go(func() { informer.RunWithContext(ctx) })
	return given
}

// send is a send that is left out if one is waiting to be received.
func send(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
