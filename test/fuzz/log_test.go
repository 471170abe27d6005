package fuzz

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// follower reads the log of a host as it grows.
type follower struct {
	file *os.File
	in   *bufio.Reader
	rest []byte
	// bytes is the size of the log, and own what of it are lines of the host itself.
	bytes, own int64
	// begun is set after the first line of a stage at random: what the host prints before is no log.
	begun bool
	// stages is set if the line before was one of a stage at random.
	stages bool
	// texts counts lines of the host itself by what they say.
	texts map[string]int
}

func follow(path string) (*follower, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &follower{file: f, in: bufio.NewReader(f), texts: map[string]int{}}, nil
}

// next reads the lines that are new, and returns what is wrong with them.
func (f *follower) next() []string {
	var wrong []string
	for {
		line, err := f.in.ReadBytes('\n')
		f.rest = append(f.rest, line...)
		if err == io.EOF {
			return wrong
		}
		if err != nil {
			return append(wrong, err.Error())
		}
		if what := f.check(bytes.TrimSuffix(f.rest, []byte("\n"))); what != "" && len(wrong) < 20 {
			wrong = append(wrong, fmt.Sprintf("%s: %.500q", what, f.rest))
		}
		f.rest = f.rest[:0]
	}
}

var (
	// lineHead begins a line of the log; ofRandomStage is its logger if a stage at random has written it.
	lineHead      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[0-9:.]+\S* \[[A-Z]+\] +`)
	ofRandomStage = regexp.MustCompile(`^catena\.random-[abc]: `)
	// ofHost is in the stack of a panic of the host. What a stage has written when it ended is in lines of the host, too.
	ofHost  = regexp.MustCompile(`catena/host/internal/|Observed a panic|: a panic in `)
	figures = regexp.MustCompile(`[0-9]+`)
)

// check returns what is wrong with a line.
func (f *follower) check(line []byte) string {
	f.bytes += int64(len(line)) + 1
	head := lineHead.Find(line)
	text := line[len(head):]
	if head != nil {
		f.stages = ofRandomStage.Match(text)
	}
	f.begun = f.begun || f.stages
	// What belongs to the line above is indented; the last words of the host are no log.
	continued := bytes.HasPrefix(line, []byte("  ")) || bytes.HasPrefix(line, []byte("catena: "))
	if !f.stages {
		f.own += int64(len(line)) + 1
		if head != nil {
			words := strings.Fields(string(figures.ReplaceAll(text, []byte("0"))))
			f.texts[strings.Join(words[:min(len(words), 7)], " ")]++
		}
	}
	switch {
	case !utf8.Valid(line):
		return "no UTF-8"
	case bytes.ContainsFunc(line, func(r rune) bool { return r != '\t' && (unicode.IsControl(r) || !unicode.IsPrint(r)) }):
		return "a character that cannot be printed"
	case bytes.HasPrefix(line, []byte("panic: ")), bytes.HasPrefix(line, []byte("fatal error: ")), bytes.HasPrefix(line, []byte("goroutine ")), !f.stages && ofHost.Match(line):
		return "a panic"
	case f.begun && head == nil && !continued && len(line) > 0:
		return "a line without a head"
	}
	return ""
}

// most returns the most frequent lines of the host itself.
func (f *follower) most(n int) string {
	var b strings.Builder
	for ; n > 0; n-- {
		best := ""
		for text, count := range f.texts {
			if best == "" || count > f.texts[best] || count == f.texts[best] && text < best {
				best = text
			}
		}
		if best == "" {
			break
		}
		fmt.Fprintf(&b, "%8d %s\n", f.texts[best], best)
		delete(f.texts, best)
	}
	return b.String()
}
