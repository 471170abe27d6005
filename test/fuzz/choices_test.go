package fuzz

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// choices are those of one process. The n-th of a purpose depends on the seed, the process, the purpose and n
// alone, and not on what else happens at the time.
type choices struct {
	seed          uint64
	process       string
	only, without []string

	mu      sync.Mutex
	counts  map[string]int
	journal *os.File
	left    int // bytes that the journal may still take
}

// journalSize bounds the journal of a process.
const journalSize = 1 << 20

func newChoices(seed uint64, process, only, without string, journal *os.File) *choices {
	split := func(s string) []string {
		return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
	}
	return &choices{seed: seed, process: process, only: split(only), without: split(without), counts: map[string]int{}, journal: journal, left: journalSize}
}

// of returns the source of the next choices for a purpose.
func (c *choices) of(purpose string) *source {
	c.mu.Lock()
	c.counts[purpose]++
	n := c.counts[purpose]
	c.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d", c.process, purpose, n)
	return &source{Rand: rand.New(rand.NewPCG(c.seed, h.Sum64())), choices: c, purpose: fmt.Sprintf("%s %d", purpose, n)}
}

// note writes a choice to the journal.
func (c *choices) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := time.Now().UTC().Format("15:04:05.000 ") + text + "\n"
	if c.journal != nil && c.left >= len(line) {
		c.left -= len(line)
		_, _ = c.journal.WriteString(line)
	}
}

// allows reports whether a fault may happen.
func (c *choices) allows(fault string) bool {
	within := func(part string) bool { return strings.Contains(fault, part) }
	return !slices.ContainsFunc(c.without, within) && (len(c.only) == 0 || slices.ContainsFunc(c.only, within))
}

// source makes the choices of one call, response or connection. It is used by one goroutine.
type source struct {
	*rand.Rand
	*choices
	purpose string
}

// one reports true once in n times.
func (s *source) one(n int) bool { return s.IntN(n) == 0 }

// fault reports whether a fault happens, once in n times, and notes it.
func (s *source) fault(n int, name string) bool {
	if !s.one(n) || !s.allows(name) {
		return false
	}
	s.note(s.purpose + ": " + name)
	return true
}

// pick chooses one of the faults that may happen, and notes it. It is empty if there is none.
func (s *source) pick(faults ...string) string {
	faults = slices.DeleteFunc(slices.Clone(faults), func(f string) bool { return !s.allows(f) })
	if len(faults) == 0 {
		return ""
	}
	chosen := faults[s.IntN(len(faults))]
	s.note(s.purpose + ": " + chosen)
	return chosen
}

// upTo returns a duration.
func (s *source) upTo(d time.Duration) time.Duration { return time.Duration(s.Int64N(int64(d))) }

// size returns a number of bytes or things: mostly small, sometimes large, rarely the largest.
func (s *source) size(largest int) int {
	switch s.IntN(20) {
	case 0:
		return s.IntN(largest) + 1
	case 1, 2, 3:
		return s.IntN(max(largest/100, 10)) + 1
	default:
		return s.IntN(8)
	}
}

// bytes returns any bytes.
func (s *source) bytes(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := s.Uint64()
		for j := i; j < min(n, i+8); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return b
}

// words are texts that mean something to somebody.
var words = []string{
	"", "/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/version", "/livez", "/metrics", "/**", "/fuzz", "/fuzz/random-a", "/fuzz/random-b/x", "/fuzz/../api/v1",
	"//", "/%2e%2e/api", "/fuzz/..;x/", "/apis/fuzz.example.com", "/apis/fuzz.example.com/v1", "/apis/fuzz.example.com/v1/things", "/a\\b",
	"core", "aggregator", "extensions", "host", "random-a", "random-b", "random-c", "catena", "poststarthook/start", "etcd", "ping", "log", "check", "start", "ready",
	"\x00", "\r\n", "\n2026-01-01T00:00:00.000Z [ERROR] catena: forged", "\x1b[2J\x1b]0;title\x07", "\u2028", "\u202e", "\ufeff", "é😀", "\x7f", " ", "\t", "=", `"`, "%s%n", "{}", "[]", "null", "true", "-1", "0", "1", "1e309", "NaN",
	"18446744073709551616", "9223372036854775807", "100000000000", `{"type":"object"}`, `{"$ref":"#"}`, `{"pattern":"(a+)+$"}`,
	"pods", "configmaps", "things.fuzz.example.com", "v1", "v1.37.0", "1.37", "text/plain", "application/json", "chunked", "close", "keep-alive", "upgrade", "100-continue", "websocket", "gzip",
	"apf-queue-wait=1", "total=99999999999999999999", "a=1,b=2,c", "catena_stages", `x{stage="core"} 1`, "# TYPE x histogram", "system:masters", "system:apiserver",
}

// text returns a text, of at most so many bytes or a few more.
func (s *source) text(largest int) string {
	switch s.IntN(8) {
	case 0:
		return strings.Repeat("x", s.size(largest))
	case 1:
		return strings.ToValidUTF8(string(s.bytes(s.size(largest))), "?")
	case 2:
		return s.json(largest)
	case 3:
		word := words[s.IntN(len(words))]
		return strings.Repeat(word, s.size(largest/(len(word)+1)+1))
	default:
		return words[s.IntN(len(words))] + words[s.IntN(len(words))]
	}
}

// json returns JSON, deep or wide, or what almost is.
func (s *source) json(largest int) string {
	n := s.size(max(largest/10, 2))
	switch s.IntN(6) {
	case 0:
		return strings.Repeat("[", n) + strings.Repeat("]", n)
	case 1:
		return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)
	case 2:
		return strings.Repeat(`[`, n)
	case 3:
		return "[" + strings.Repeat("0,", n) + "0]"
	default:
		m := map[string]any{}
		for range min(n, 1000) {
			m[words[s.IntN(len(words))]+fmt.Sprint(s.IntN(10000))] = []any{words[s.IntN(len(words))], s.Int64(), nil, map[string]any{}}
		}
		text, _ := json.Marshal(m)
		return string(text)
	}
}

// audit returns what may be a value of X-Catena-Audit.
func (s *source) audit(largest int) string {
	if s.one(4) {
		return s.json(largest)
	}
	annotations := map[string]string{}
	for range s.size(max(largest/40, 10)) {
		annotations[s.name()+"/"+s.name()] = words[s.IntN(len(words))]
	}
	head, _ := json.Marshal(annotations)
	return fmt.Sprintf(`{"annotations":%s,"objectRef":{"resource":"pods","name":%q},"requestObject":%s,"responseObject":%s,"responseStatus":{"code":%d}}`,
		head, s.name(), s.json(largest), s.json(largest), s.IntN(1000)-100)
}

func (s *source) name() string {
	names := []string{"a", "fuzz.example.com", "random-a.stage.catena.dev", "random-b.stage.catena.dev", "authorization.k8s.io", "catena.dev", "pod-security.kubernetes.io", "x y", "decision"}
	return names[s.IntN(len(names))] + strings.Repeat("a", s.IntN(3))
}
