package join

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"
)

// Token lets a host read the keys of a cluster, which the store has encrypted under it, until it expires. The store does not
// have the token.
type Token struct {
	// Cluster is the name of the cluster.
	Cluster string
	// ID is the name of the token, which is no secret.
	ID string
	// Expires is in whole seconds.
	Expires time.Time

	secret []byte
}

const (
	tokenPrefix = "catena-join-1."
	clusterSize = 8
	idSize      = 6
	secretSize  = 32
)

// String returns the token as ParseToken takes it. It is a secret.
func (t Token) String() string {
	cluster, _ := hex.DecodeString(t.Cluster)
	id, _ := hex.DecodeString(t.ID)
	expires := binary.BigEndian.AppendUint64(nil, uint64(t.Expires.Unix()))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(slices.Concat(cluster, id, expires, t.secret))
}

// ParseToken reads a token.
func ParseToken(text string) (Token, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	if !ok {
		return Token{}, fmt.Errorf("a token begins with %s; catena token create prints one", tokenPrefix)
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(data) != clusterSize+idSize+8+secretSize {
		return Token{}, errors.New("the token is not complete: copy the whole line that catena token create has printed")
	}
	next := func(n int) []byte {
		part := data[:n]
		data = data[n:]
		return part
	}
	return Token{
		Cluster: hex.EncodeToString(next(clusterSize)),
		ID:      hex.EncodeToString(next(idSize)),
		Expires: time.Unix(int64(binary.BigEndian.Uint64(next(8))), 0).UTC(),
		secret:  next(secretSize),
	}, nil
}

// sealed is what the store has of a token.
type sealed struct {
	// Host is the one that has made the token.
	Host    Host      `json:"host"`
	Expires time.Time `json:"expires"`
	// Keys are encrypted files.
	Keys []byte `json:"keys"`
}

// Issued is a token that has not expired, as the store knows it.
type Issued struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"`
	Expires time.Time `json:"expires"`
}

func (c *Cluster) tokenKey(id string) string { return c.prefix + "tokens/" + id }

// CreateToken encrypts files, by their names, for the hosts that get the token, until it expires. The keys are those in the
// files, and must fit those of the cluster.
func (c *Cluster) CreateToken(ctx context.Context, files map[string][]byte, own Keys, self Host, ttl time.Duration) (Token, error) {
	record, err := c.Record(ctx)
	if err != nil {
		return Token{}, err
	}
	if reasons := own.fit(record.Keys); reasons != nil {
		return Token{}, &MismatchError{Record: record, Reasons: reasons}
	}
	random := make([]byte, idSize+secretSize)
	if _, err := rand.Read(random); err != nil {
		return Token{}, err
	}
	t := Token{
		Cluster: record.Cluster, ID: hex.EncodeToString(random[:idSize]),
		Expires: c.now().Add(ttl).UTC().Truncate(time.Second), secret: random[idSize:],
	}
	plain, err := json.Marshal(files)
	if err != nil {
		return Token{}, err
	}
	s := sealed{Host: self, Expires: t.Expires}
	if s.Keys, err = t.seal(plain); err != nil {
		return Token{}, err
	}
	value, err := json.Marshal(s)
	if err != nil {
		return Token{}, err
	}
	lease, err := c.client.Grant(ctx, max(1, int64(ttl.Seconds())))
	if err != nil {
		return Token{}, fmt.Errorf("store the token in etcd: %w", err)
	}
	if _, err := c.client.Put(ctx, c.tokenKey(t.ID), string(value), clientv3.WithLease(lease.ID)); err != nil {
		return Token{}, fmt.Errorf("store the token in etcd: %w", err)
	}
	return t, nil
}

// Tokens returns the tokens that have not expired, by ID.
func (c *Cluster) Tokens(ctx context.Context) ([]Issued, error) {
	resp, err := c.client.Get(ctx, c.tokenKey(""), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the tokens in etcd: %w", err)
	}
	issued := []Issued{}
	for _, kv := range resp.Kvs {
		var s sealed
		if err := json.Unmarshal(kv.Value, &s); err != nil {
			return nil, fmt.Errorf("%s in etcd: %w", kv.Key, err)
		}
		issued = append(issued, Issued{ID: path.Base(string(kv.Key)), Host: s.Host.Name, Expires: s.Expires})
	}
	return issued, nil
}

// DeleteToken makes a token useless.
func (c *Cluster) DeleteToken(ctx context.Context, id string) error {
	resp, err := c.client.Delete(ctx, c.tokenKey(id))
	if err != nil {
		return fmt.Errorf("delete the token in etcd: %w", err)
	}
	if resp.Deleted == 0 {
		return fmt.Errorf("there is no token %s; catena token list prints those that there are", id)
	}
	return nil
}

// Keys returns the files for which a token was made, to a host with a release of Kubernetes. It stays valid for other hosts.
func (c *Cluster) Keys(ctx context.Context, t Token, release string) (map[string][]byte, error) {
	record, err := c.Record(ctx)
	if err != nil {
		return nil, err
	}
	if record.Cluster != t.Cluster {
		return nil, fmt.Errorf("the token is for cluster %s, and this etcd has cluster %s", t.Cluster, record.Cluster)
	}
	if now := c.now(); now.After(t.Expires) {
		return nil, fmt.Errorf("the token expired on %s, and it is %s now: catena token create on a host of the cluster makes another",
			t.Expires.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	resp, err := c.client.Get(ctx, c.tokenKey(t.ID))
	if err != nil {
		return nil, fmt.Errorf("read the token in etcd: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return nil, fmt.Errorf("the cluster does not have token %s: it was deleted, has expired by the clock of etcd, or was made after the backup that etcd was restored from", t.ID)
	}
	var s sealed
	if err := json.Unmarshal(resp.Kvs[0].Value, &s); err != nil {
		return nil, fmt.Errorf("%s in etcd: %w", resp.Kvs[0].Key, err)
	}
	if err := neighbours(release, record.Release); err != nil {
		return nil, err
	}
	plain, err := t.open(s.Keys)
	if err != nil {
		return nil, fmt.Errorf("the secret of token %s is wrong: copy the whole line that catena token create has printed", t.ID)
	}
	var files map[string][]byte
	return files, json.Unmarshal(plain, &files)
}

// neighbours returns an error unless servers of both releases may serve one cluster, as Kubernetes' rules on version skew
// say: their minor versions differ by one at most.
func neighbours(own, cluster string) error {
	a, err := version.ParseSemantic(own)
	if err != nil {
		return err
	}
	b, err := version.ParseSemantic(cluster)
	if err != nil {
		return fmt.Errorf("release of the cluster: %w", err)
	}
	if a.Major() != b.Major() || max(a.Minor(), b.Minor())-min(a.Minor(), b.Minor()) > 1 {
		return fmt.Errorf("this host is Kubernetes %s and the cluster is %s: their minor versions may differ by one at most", own, cluster)
	}
	return nil
}

func (t Token) seal(plain []byte) ([]byte, error) {
	aead, err := t.cipher()
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, plain, []byte(t.Cluster+"/"+t.ID)), nil
}

func (t Token) open(ciphertext []byte) ([]byte, error) {
	aead, err := t.cipher()
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, nil, ciphertext, []byte(t.Cluster+"/"+t.ID))
}

func (t Token) cipher() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, t.secret, nil, "catena join token 1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
