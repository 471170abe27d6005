// Package join makes several hosts one cluster. It keeps a record of the keys that they have in common in the store
// that they share, checks that those of a host fit it, and passes the keys to a new host that has a token.
package join

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Cluster is what hosts share in the store. Its methods may be called concurrently, by different hosts too.
type Cluster struct {
	client *clientv3.Client
	prefix string
	now    func() time.Time
}

// Host is one that uses the store.
type Host struct {
	// Name is the name of its machine.
	Name string `json:"host"`
	// Release is that of Kubernetes, such as v1.37.0.
	Release string `json:"release"`
}

// Record is what the store has of the cluster.
type Record struct {
	// Cluster is a random name, of which each cluster has its own.
	Cluster string `json:"cluster"`
	// Host is the one that wrote the record: the one that last started with other keys or another release than the one before.
	Host
	Time time.Time `json:"time"`
	Keys Keys      `json:"keys"`
}

// Open returns the cluster whose objects are in the store below a prefix, such as /registry. The caller closes the client.
func Open(client *clientv3.Client, registry string) *Cluster {
	// Beside the registry, and not below it, so that no stage takes this for its own.
	return &Cluster{client: client, prefix: strings.TrimSuffix(registry, "/") + ".cluster/", now: time.Now}
}

func (c *Cluster) recordKey() string { return c.prefix + "keys" }

// ErrNoRecord means that no host has started on the store yet.
var ErrNoRecord = errors.New("no host has served this cluster yet: start the first one")

// Record returns the record, or ErrNoRecord.
func (c *Cluster) Record(ctx context.Context) (*Record, error) {
	record, _, err := c.read(ctx)
	return record, err
}

// read also returns the revision of the record, or 0.
func (c *Cluster) read(ctx context.Context) (*Record, int64, error) {
	resp, err := c.client.Get(ctx, c.recordKey())
	if err != nil {
		return nil, 0, fmt.Errorf("read %s in etcd: %w", c.recordKey(), err)
	}
	if len(resp.Kvs) == 0 {
		return nil, 0, ErrNoRecord
	}
	record := &Record{}
	if err := json.Unmarshal(resp.Kvs[0].Value, record); err != nil {
		return nil, 0, fmt.Errorf("%s in etcd: %w", c.recordKey(), err)
	}
	return record, resp.Kvs[0].ModRevision, nil
}

// MismatchError means that a host cannot serve in a cluster: clients would be known to some hosts only.
type MismatchError struct {
	// Record is that of the cluster.
	Record *Record
	// Reasons name the flags, and what differs.
	Reasons error
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the keys of this host are not those of cluster %s, which host %s recorded on %s: %s",
		e.Record.Cluster, e.Record.Host.Name, e.Record.Time.Format(time.RFC3339), strings.ReplaceAll(e.Reasons.Error(), "\n", "; "))
}

// Unwrap returns the reasons.
func (e *MismatchError) Unwrap() error { return e.Reasons }

// Check returns a MismatchError if the keys of a host do not fit those of the cluster. Otherwise they are recorded, so that
// keys can be exchanged one host at a time: first all hosts learn to verify with the new one, then each signs with it.
// The first host makes the record.
func (c *Cluster) Check(ctx context.Context, own Keys, self Host) error {
	return c.record(ctx, own, self, true)
}

// Replace records the keys of a host as those of the cluster, whether or not they fit.
func (c *Cluster) Replace(ctx context.Context, own Keys, self Host) error {
	return c.record(ctx, own, self, false)
}

// record writes the record again until no other host has written it in between.
func (c *Cluster) record(ctx context.Context, own Keys, self Host, check bool) error {
	for {
		old, revision, err := c.read(ctx)
		if errors.Is(err, ErrNoRecord) {
			old, err = newRecord()
		}
		if err != nil {
			return err
		}
		if revision != 0 && check {
			if reasons := own.fit(old.Keys); reasons != nil {
				return &MismatchError{Record: old, Reasons: reasons}
			}
		}
		if own.equal(old.Keys) && self.Release == old.Release {
			return nil
		}
		next := Record{Cluster: old.Cluster, Host: self, Time: c.now().UTC(), Keys: own}
		written, err := c.write(ctx, next, revision)
		if err != nil || written {
			return err
		}
	}
}

// write writes the record unless its revision is another by now.
func (c *Cluster) write(ctx context.Context, r Record, revision int64) (bool, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	resp, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(c.recordKey()), "=", revision)).
		Then(clientv3.OpPut(c.recordKey(), string(value))).Commit()
	if err != nil {
		return false, fmt.Errorf("write %s in etcd: %w", c.recordKey(), err)
	}
	return resp.Succeeded, nil
}

func newRecord() (*Record, error) {
	name := make([]byte, clusterSize)
	_, err := rand.Read(name)
	return &Record{Cluster: hex.EncodeToString(name)}, err
}
