package store

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// keyspace maps the keys that a client of its own part of the store sees to those in
// etcd, which all begin with the prefix. The zero value maps all keys to themselves.
type keyspace struct {
	prefix []byte
	// end is the first key after all that begin with prefix.
	end []byte
}

func newKeyspace(prefix string) keyspace {
	end := []byte(prefix)
	end[len(end)-1]++ // the prefix ends with a slash
	return keyspace{prefix: []byte(prefix), end: end}
}

// all stands for the first key, or for what follows the last one, in etcd's requests.
var all = []byte{0}

// add returns the range of etcd's keys for a range of the client's. An empty end is
// that of a single key.
func (k keyspace) add(key, end []byte) (fullKey, fullEnd []byte) {
	fullKey = bytes.Join([][]byte{k.prefix, key}, nil)
	switch {
	case len(end) == 0:
		return fullKey, nil
	case bytes.Equal(end, all) && len(k.prefix) > 0:
		return fullKey, k.end
	default:
		return fullKey, bytes.Join([][]byte{k.prefix, end}, nil)
	}
}

// strip removes the prefix from keys of a response.
func (k keyspace) strip(kvs ...*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if kv != nil {
			kv.Key = bytes.TrimPrefix(kv.Key, k.prefix)
		}
	}
}

func (k keyspace) rangeRequest(r *etcdserverpb.RangeRequest) {
	r.Key, r.RangeEnd = k.add(r.Key, r.RangeEnd)
}

func (k keyspace) putRequest(r *etcdserverpb.PutRequest) { r.Key, _ = k.add(r.Key, nil) }

func (k keyspace) deleteRequest(r *etcdserverpb.DeleteRangeRequest) {
	r.Key, r.RangeEnd = k.add(r.Key, r.RangeEnd)
}

func (k keyspace) txnRequest(r *etcdserverpb.TxnRequest) {
	for _, c := range r.GetCompare() {
		c.Key, c.RangeEnd = k.add(c.Key, c.RangeEnd)
	}
	for _, ops := range [][]*etcdserverpb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetRequest().(type) {
			case *etcdserverpb.RequestOp_RequestRange:
				k.rangeRequest(op.RequestRange)
			case *etcdserverpb.RequestOp_RequestPut:
				k.putRequest(op.RequestPut)
			case *etcdserverpb.RequestOp_RequestDeleteRange:
				k.deleteRequest(op.RequestDeleteRange)
			case *etcdserverpb.RequestOp_RequestTxn:
				k.txnRequest(op.RequestTxn)
			}
		}
	}
}

func (k keyspace) txnResponse(r *etcdserverpb.TxnResponse) {
	for _, op := range r.GetResponses() {
		switch op := op.GetResponse().(type) {
		case *etcdserverpb.ResponseOp_ResponseRange:
			k.strip(op.ResponseRange.GetKvs()...)
		case *etcdserverpb.ResponseOp_ResponsePut:
			k.strip(op.ResponsePut.GetPrevKv())
		case *etcdserverpb.ResponseOp_ResponseDeleteRange:
			k.strip(op.ResponseDeleteRange.GetPrevKvs()...)
		case *etcdserverpb.ResponseOp_ResponseTxn:
			k.txnResponse(op.ResponseTxn)
		}
	}
}

func (k keyspace) watchRequest(r *etcdserverpb.WatchRequest) {
	if c := r.GetCreateRequest(); c != nil {
		c.Key, c.RangeEnd = k.add(c.Key, c.RangeEnd)
		c.Fragment = true // a thousand revisions come at once otherwise, which can be too large to be received at all
	}
}

func (k keyspace) watchResponse(r *etcdserverpb.WatchResponse) {
	for _, e := range r.GetEvents() {
		k.strip(e.Kv, e.PrevKv)
	}
}
