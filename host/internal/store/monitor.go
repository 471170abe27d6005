package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Monitor watches how etcd does while the server runs. Its functions are called one at a time.
type Monitor struct {
	// Silent is called when etcd does not respond, for the first time with the reason, and Responds when it does again.
	Silent   func(error)
	Responds func(after time.Duration)
	// Full is called when etcd has reached its quota and refuses writes, and Writable when it accepts them again.
	Full     func()
	Writable func(after time.Duration)
	// Size is called with the size of the file of etcd, and the one at which it refuses writes, at each look at that.
	Size func(used, quota int64)
	// Restored is called when etcd has another history than before: from a backup, or of another cluster. The
	// revisions are the latest of before and the one of now.
	Restored func(was, is int64)
	options  Options
	client   *clientv3.Client
	// silent and full are since when it is; zero if it is not.
	silent, full time.Time
	cluster      uint64
	revision     int64
}

const (
	// monitorInterval is how often etcd is asked. A failure is looked at more often. What is written between the last
	// question and the end of an etcd that is restored from a backup can hide that the backup is older.
	monitorInterval  = 2 * time.Second
	troubledInterval = time.Second
	// embeddedInterval is that of an embedded etcd, which can only become full.
	embeddedInterval = 10 * time.Second
)

// Run asks etcd until ctx ends.
func (m *Monitor) Run(ctx context.Context, o Options) error {
	if err := m.connect(o); err != nil {
		return err
	}
	defer m.client.Close()
	for {
		m.observe(ctx)
		interval := monitorInterval
		if len(o.Endpoints) == 0 {
			interval = embeddedInterval
		}
		if !m.silent.IsZero() || !m.full.IsZero() {
			interval = troubledInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func (m *Monitor) connect(o Options) (err error) {
	m.options = o
	m.client, err = o.Connect()
	return err
}

// observe asks once.
func (m *Monitor) observe(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	header, err := m.ask(asked)
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil && m.silent.IsZero():
		m.silent = time.Now()
		m.Silent(err)
		return
	case err != nil:
		return
	case !m.silent.IsZero():
		m.Responds(time.Since(m.silent))
		m.silent = time.Time{}
	}
	if header != nil {
		if m.cluster != 0 && (header.ClusterId != m.cluster || header.Revision < m.revision) {
			m.Restored(m.revision, header.Revision)
		}
		m.cluster, m.revision = header.ClusterId, header.Revision
		if m.options.Revisions != nil {
			m.options.Revisions.note(time.Now(), header.Revision)
		}
	}
	m.checkQuota(ctx)
}

// ask reads what needs the quorum of the cluster. The header is nil if etcd responds that this user may not.
func (m *Monitor) ask(ctx context.Context) (*etcdserverpb.ResponseHeader, error) {
	resp, err := m.client.Get(ctx, "catena/health", clientv3.WithCountOnly())
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return nil, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no response within %s", attemptTimeout)
	case err != nil:
		return nil, err
	}
	return resp.Header, nil
}

// checkQuota looks for the alarm of a member that is full. An error, such as that of a user who may not ask, says nothing.
func (m *Monitor) checkQuota(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	alarms, err := m.client.AlarmList(ctx)
	if err != nil {
		return
	}
	if status, err := m.client.Status(ctx, m.client.Endpoints()[0]); err == nil {
		m.Size(status.DbSize, status.DbSizeQuota) // what is free in the file counts for the quota
	}
	full := false
	for _, a := range alarms.Alarms {
		full = full || a.GetAlarm() == etcdserverpb.AlarmType_NOSPACE
	}
	if full && m.full.IsZero() {
		m.full = time.Now()
		m.Full()
	}
	if full && len(m.options.Endpoints) == 0 {
		full = m.reclaim(ctx) != nil
	}
	if !full && !m.full.IsZero() {
		m.Writable(time.Since(m.full))
		m.full = time.Time{}
	}
}

const (
	// reclaimTimeout bounds a defragmentation, during which etcd does nothing else.
	reclaimTimeout = time.Minute
	// roomy is the part of the quota, in percent, below which a full embedded server accepts writes again.
	roomy = 80
)

// errNoRoom means that too few objects have been deleted.
var errNoRoom = errors.New("the objects fill the quota")

// reclaim makes a full embedded server, which only its host can maintain, writable again if objects have been deleted:
// old revisions are dropped, the file is rewritten without them, and the alarm is ended. Watches that lag behind list
// again.
func (m *Monitor) reclaim(ctx context.Context) error {
	if _, err := m.client.Compact(ctx, m.revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	endpoint := m.client.Endpoints()[0]
	status, err := m.client.Status(ctx, endpoint)
	if err != nil {
		return err
	}
	if status.DbSizeInUse > status.DbSizeQuota/100*roomy {
		return errNoRoom
	}
	if _, err := m.client.Defragment(ctx, endpoint); err != nil {
		return err
	}
	_, err = m.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}
