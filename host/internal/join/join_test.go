package join

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/util/keyutil"

	"github.com/catena-dev/catena/host/internal/store"
)

// newClient returns a client of an empty etcd.
func newClient(t *testing.T) *clientv3.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "join") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := store.Options{Dir: dir, Socket: filepath.Join(dir, "etcd.sock")}
	s, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	client, err := o.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func host(name string) Host { return Host{Name: name, Release: "v1.37.0"} }

func keys(signing string, verifying ...string) Keys {
	return Keys{Signing: signing, Verifying: append(verifying, signing), Issuers: []string{"https://a"}, ClientCAs: []string{"ca"}}.normal()
}

func mismatch(t *testing.T, err error, want ...string) {
	t.Helper()
	if _, ok := errors.AsType[*MismatchError](err); !ok {
		t.Fatalf("error is %v, want a MismatchError", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error does not have %q: %v", w, err)
		}
	}
}

func TestKeysThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	c := Open(newClient(t), "/registry")
	if _, err := c.Record(t.Context()); !errors.Is(err, ErrNoRecord) {
		t.Fatalf("before the first host: %v", err)
	}
	if err := c.Check(t.Context(), keys("k1"), host("one")); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context(), keys("k1"), host("two")); err != nil {
		t.Errorf("a host with the same keys: %v", err)
	}
	before, err := c.Record(t.Context())
	if err != nil || before.Host.Name != "one" {
		t.Fatalf("record is %+v, %v, want that of the first host", before, err)
	}
	mismatch(t, c.Check(t.Context(), keys("k2"), host("two")), "service-account-key-file", "service-account-signing-key-file", "k1", "k2", "host one")
	mismatch(t, c.Check(t.Context(), Keys{Verifying: []string{"other"}}, host("two")), "service-account-key-file")
	otherIssuer, otherCA := keys("k1"), keys("k1")
	otherIssuer.Issuers, otherCA.ClientCAs = []string{"https://b"}, []string{"other"}
	mismatch(t, c.Check(t.Context(), otherIssuer, host("two")), "service-account-issuer", "https://a")
	mismatch(t, c.Check(t.Context(), otherCA, host("two")), "client-ca-file")
	if after, err := c.Record(t.Context()); err != nil || !after.Keys.equal(before.Keys) || after.Cluster != before.Cluster {
		t.Errorf("refused keys changed the record: %+v, %v", after, err)
	}
	if err := c.Replace(t.Context(), keys("k2"), host("two")); err != nil {
		t.Fatal(err)
	}
	if after, err := c.Record(t.Context()); err != nil || after.Keys.Signing != "k2" || after.Cluster != before.Cluster {
		t.Errorf("after Replace: %+v, %v", after, err)
	}
}

// A key is exchanged without an end of service: all hosts learn the new one, then each signs with it, then the old one goes.
func TestKeysAreExchangedOneHostAtATime(t *testing.T) {
	t.Parallel()
	c := Open(newClient(t), "/registry")
	for _, step := range []struct {
		host string
		Keys
		refused bool
	}{
		{"one", keys("old"), false},
		{"two", keys("old"), false},
		{"one", keys("old", "new"), false},
		{"two", keys("old", "new"), false},
		{"one", keys("new", "old"), false},
		{"three", keys("old"), true}, // which would refuse tokens of the first host
		{"two", keys("new", "old"), false},
		{"one", keys("new"), false},
		{"two", keys("new"), false},
		{"three", keys("old", "new"), true}, // whose tokens the others would refuse
	} {
		if err := c.Check(t.Context(), step.Keys, host(step.host)); (err != nil) != step.refused {
			t.Errorf("%s with %+v: %v", step.host, step.Keys, err)
		}
	}
}

// Of several hosts that start at once on an empty store, one makes the record, and those with other keys are refused.
func TestFirstHostsAtOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	const hosts = 8
	errs := make(chan error, hosts)
	for i := range hosts {
		go func() {
			errs <- Open(client, "/registry").Check(t.Context(), keys(string(rune('a'+i))), host("one"))
		}()
	}
	refused := 0
	for range hosts {
		if err := <-errs; err != nil {
			mismatch(t, err)
			refused++
		}
	}
	if refused != hosts-1 {
		t.Errorf("%d of %d hosts with different keys were refused, want all but one", refused, hosts)
	}
}

func TestClustersInOneEtcd(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for prefix, key := range map[string]string{"/registry": "k1", "/other/": "k2"} {
		if err := Open(client, prefix).Check(t.Context(), keys(key), host("one")); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	c := Open(client, "/registry")
	files := map[string][]byte{"ca.key": []byte("SECRET"), "sa.key": {0, 1, 2}}
	if _, err := c.CreateToken(t.Context(), files, keys("k1"), host("one"), time.Hour); !errors.Is(err, ErrNoRecord) {
		t.Fatalf("token of a cluster that nobody has served: %v", err)
	}
	if err := c.Check(t.Context(), keys("k1"), host("one")); err != nil {
		t.Fatal(err)
	}
	_, err := c.CreateToken(t.Context(), files, keys("k2"), host("one"), time.Hour)
	mismatch(t, err)
	token, err := c.CreateToken(t.Context(), files, keys("k1"), host("one"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseToken(" " + token.String() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Keys(t.Context(), parsed, "v1.38.1")
	if err != nil || !maps.EqualFunc(got, files, slices.Equal) {
		t.Errorf("files are %q, %v", got, err)
	}
	stored, err := client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range stored.Kvs {
		if strings.Contains(string(kv.Value), "SECRET") || strings.Contains(string(kv.Value), string(parsed.secret)) {
			t.Errorf("%s in etcd has a secret", kv.Key)
		}
	}
	if issued, err := c.Tokens(t.Context()); err != nil || len(issued) != 1 || issued[0] != (Issued{token.ID, "one", token.Expires}) {
		t.Errorf("tokens are %+v, %v", issued, err)
	}
	for _, id := range []string{"no-such-token", ""} {
		if err := c.DeleteToken(t.Context(), id); err == nil {
			t.Errorf("token %q was deleted", id)
		}
	}
	if err := c.DeleteToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Keys(t.Context(), parsed, "v1.37.0"); err == nil || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("deleted token: %v", err)
	}
}

// What docs/hosts.md says of a token that was deleted: etcd's history has the keys until that is compacted, and no longer.
func TestDeletedTokenAndHistory(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	c := Open(client, "/registry")
	if err := c.Check(t.Context(), keys("k1"), host("one")); err != nil {
		t.Fatal(err)
	}
	token, err := c.CreateToken(t.Context(), map[string][]byte{"sa.key": []byte("SECRET")}, keys("k1"), host("one"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.Get(t.Context(), c.tokenKey(token.ID))
	if err == nil {
		err = c.DeleteToken(t.Context(), token.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	history := func() (*clientv3.GetResponse, error) {
		return client.Get(t.Context(), c.tokenKey(token.ID), clientv3.WithRev(before.Header.Revision))
	}
	old, err := history()
	if err != nil || len(old.Kvs) != 1 {
		t.Fatalf("history: %v, %v", old, err)
	}
	var s sealed
	if err := json.Unmarshal(old.Kvs[0].Value, &s); err != nil {
		t.Fatal(err)
	}
	if plain, err := token.open(s.Keys); err != nil || !strings.Contains(string(plain), "sa.key") {
		t.Errorf("in the history: %q, %v", plain, err)
	}
	if _, err := client.Compact(t.Context(), old.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if _, err := history(); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("after the compaction: %v", err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	c, other := Open(client, "/registry"), Open(client, "/other")
	for _, c := range []*Cluster{c, other} {
		if err := c.Check(t.Context(), keys("k1"), host("one")); err != nil {
			t.Fatal(err)
		}
	}
	token, err := c.CreateToken(t.Context(), nil, keys("k1"), host("one"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	wrong := token
	wrong.secret = slices.Clone(token.secret)
	wrong.secret[0]++
	unknown := token
	unknown.ID = "000000000000"
	late := Open(client, "/registry")
	late.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	empty := Open(client, "/empty")
	for want, call := range map[string]func() error{
		"secret of token " + token.ID + " is wrong":     func() error { _, err := c.Keys(t.Context(), wrong, "v1.37.0"); return err },
		"is for cluster " + token.Cluster:               func() error { _, err := other.Keys(t.Context(), token, "v1.37.0"); return err },
		"token expired on":                              func() error { _, err := late.Keys(t.Context(), token, "v1.37.0"); return err },
		"does not have token 000000000000":              func() error { _, err := c.Keys(t.Context(), unknown, "v1.37.0"); return err },
		"Kubernetes v1.39.0 and the cluster is v1.37.0": func() error { _, err := c.Keys(t.Context(), token, "v1.39.0"); return err },
		"Kubernetes v1.35.9 and the cluster is v1.37.0": func() error { _, err := c.Keys(t.Context(), token, "v1.35.9"); return err },
		"no host has served this cluster yet":           func() error { _, err := empty.Keys(t.Context(), token, "v1.37.0"); return err },
		"a token begins with":                           func() error { _, err := ParseToken("K10abc::server:def"); return err },
		"not complete":                                  func() error { _, err := ParseToken(token.String()[:40]); return err },
		"not complete: copy the whole line that":        func() error { _, err := ParseToken(token.String() + "x"); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(Token{Cluster: "0102030405060708", ID: "010203040506", Expires: time.Unix(1, 0), secret: make([]byte, secretSize)}.String())
	f.Add(tokenPrefix)
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err == nil && token.String() != strings.TrimSpace(text) {
			t.Errorf("%q is read as %q", text, token)
		}
	})
}

func TestReadKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var private, public []string
	for _, name := range []string{"a", "b"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text, err := keyutil.MarshalPrivateKeyToPEM(key)
		if err != nil {
			t.Fatal(err)
		}
		private = append(private, filepath.Join(dir, name+".key"))
		if err := os.WriteFile(private[len(private)-1], text, 0o600); err != nil {
			t.Fatal(err)
		}
		der, err := publicKeyID(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		public = append(public, der)
	}
	k, err := ReadKeys(Files{SigningKey: private[1], VerifyingKeys: private})
	if err != nil || k.Signing != public[1] || !slices.Equal(k.Verifying, slices.Sorted(slices.Values(public))) {
		t.Errorf("keys are %+v, %v, want %v", k, err, public)
	}
	missing := filepath.Join(dir, "missing")
	for _, f := range []Files{{SigningKey: missing}, {VerifyingKeys: []string{missing}}, {ClientCA: missing}, {ClientCA: private[0]}} {
		if _, err := ReadKeys(f); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
