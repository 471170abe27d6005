package relay

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// watchStage is a chain of one stage whose responses are watches, and the server of it. The rest of a chunk may take
// as long as wait.
func watchStage(t *testing.T, wait time.Duration, script func(c *net.UnixConn)) *bufio.Reader {
	t.Helper()
	stage := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			script(c)
		}
	})
	chain := newChain(t, Config{Watch: func(*http.Request) bool { return true }})
	chain.chunks.wait = wait
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: stage}})
	conn, err := net.Dial("tcp", serve(t, filtered(chain)).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	in := bufio.NewReader(conn)
	for line := ""; line != "\r\n"; { // the head
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// nextChunk reads a chunk.
func nextChunk(t *testing.T, in *bufio.Reader) []byte {
	t.Helper()
	line := readLine(t, in)
	n, err := strconv.ParseInt(line, 16, 64)
	if err != nil {
		t.Fatalf("a chunk begins with %q", line)
	}
	p := make([]byte, n+2)
	if _, err := io.ReadFull(in, p); err != nil {
		t.Fatal(err)
	}
	return p[:n]
}

// Each chunk of a watch is a chunk of the client, or one of several in such a chunk, but never cut, however they come.
func TestChunksOfWatchesAreWhole(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 2000, 10, 3000, 40_000, 1, 130_000, 131_072, 10, 10, 180_000, 500, 1_500_000, 300, 90_000, 50_000, 2040, 20}
	for seed := range uint64(20) {
		var text []byte
		ends := map[int]bool{}
		for i, n := range sizes {
			text = fmt.Appendf(text, "%x\r\n%s\r\n", n, bytes.Repeat([]byte{byte('a' + i)}, n))
		}
		total := 0
		for _, n := range sizes {
			total += n
			ends[total] = true
		}
		in := watchStage(t, patience, func(c *net.UnixConn) {
			random := rand.New(rand.NewPCG(seed, 1))
			for rest := append(text, "0\r\n\r\n"...); len(rest) > 0; {
				n := min(1+random.IntN(1<<random.IntN(19)), len(rest))
				_, _ = c.Write(rest[:n])
				rest = rest[n:]
			}
		})
		for sum := 0; sum < total; {
			if sum += len(nextChunk(t, in)); !ends[sum] {
				t.Fatalf("seed %d: a chunk ends at byte %d, in the middle of one of the stage", seed, sum)
			}
		}
		if last := nextChunk(t, in); len(last) > 0 {
			t.Errorf("seed %d: %d bytes more", seed, len(last))
		}
	}
}

// A chunk whose rest takes long, or that is longer than a watch may hold, is passed on as it comes.
func TestChunksInPieces(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	in := watchStage(t, bounds.ChunkWait, func(c *net.UnixConn) {
		_, _ = io.WriteString(c, "5\r\nab")
		<-seen
		_, _ = io.WriteString(c, "cde\r\n400000\r\n"+strings.Repeat("f", 100_000))
		<-seen
		_, _ = io.WriteString(c, strings.Repeat("f", 4<<20-100_000)+"\r\n1\r\ng\r\n0\r\n\r\n")
	})
	if h1.MaxChunk != bounds.Chunk {
		t.Errorf("MaxChunk is %d", h1.MaxChunk)
	}
	if got := nextChunk(t, in); string(got) != "ab" {
		t.Errorf("%q", got)
	}
	seen <- struct{}{}
	for got := 0; got < 3+100_000; {
		got += len(nextChunk(t, in))
	}
	seen <- struct{}{}
	var last []byte
	for p := nextChunk(t, in); len(p) > 0; p = nextChunk(t, in) {
		last = p
	}
	if !bytes.HasSuffix(last, []byte("g")) {
		t.Errorf("the last chunk ends with %q", last[max(0, len(last)-5):])
	}
}
