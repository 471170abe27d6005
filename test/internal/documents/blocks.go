// Package documents types what documents show, as it stands, and compares what is printed with what they say.
package documents

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// step is a command of a document with the output that follows it. Without a command it is more output of the one that runs.
type step struct {
	line     int
	terminal string
	command  string
	output   []string
}

// elsewhere is the terminal of what is shown of another server than the one that the reader has, and is not typed.
const elsewhere = "elsewhere"

// read returns the commands of a document that are in fenced blocks of the language console, from a heading on up to another; from the
// beginning, and to the end, if that is "". What stands behind the language names the terminal.
func read(document io.Reader, from, to string) ([]step, error) {
	var steps []step
	var fence string // of the block that the line is in
	var end string   // of a here-document
	within, last := from == "", false
	lines := bufio.NewScanner(document)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		heading, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		switch info, isFence := strings.CutPrefix(line, "```"); {
		case fence == "" && strings.HasPrefix(line, "#") && isHeading:
			within, last = within && heading != to || heading == from, last || heading == to && to != ""
		case isFence && fence != "":
			fence = ""
		case isFence:
			fence = info + " " // one without a language is a block, too
			if language, terminal, _ := strings.Cut(info, " "); within && language == "console" && terminal != elsewhere {
				steps = append(steps, step{line: n, terminal: terminal})
			}
		case !within || !strings.HasPrefix(fence, "console ") || strings.HasPrefix(fence, "console "+elsewhere):
		default:
			now := &steps[len(steps)-1]
			command, isCommand := strings.CutPrefix(line, "$ ")
			switch {
			case end != "":
				now.command += "\n" + line
				if line == end {
					end = ""
				}
			case isCommand:
				if now.command != "" || len(now.output) > 0 {
					steps = append(steps, step{terminal: now.terminal})
					now = &steps[len(steps)-1]
				}
				now.line, now.command = n, command
				if _, tag, ok := strings.Cut(command, "<<'"); ok {
					end = strings.TrimSuffix(tag, "'")
				}
			case line != "" || now.command == "" || len(now.output) > 0:
				now.output = append(now.output, line)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(steps) == 0 || to != "" && !last {
		return nil, fmt.Errorf("no commands from the heading %q to the heading %q", from, to)
	}
	return steps, nil
}

// differs returns the first line of what a document says that was not printed, or, if all was, the first one that was printed and that it does
// not say; "" if there is none. A line "…" stands for any number of lines.
func differs(want, got []string) string {
	switch {
	case len(want) == 0 && len(got) == 0:
		return ""
	case len(want) == 0:
		return "not in the document: " + got[0]
	case strings.TrimSpace(want[0]) == "…":
		var difference string
		for n := range len(got) + 1 {
			if difference = differs(want[1:], got[n:]); difference == "" {
				break
			}
		}
		return difference
	case len(got) == 0 || !same(want[0], got[0]):
		return "not printed: " + want[0]
	}
	return differs(want[1:], got[1:])
}

// lacks returns the first line of what a document says that was not printed in any order; "" if there is none.
func lacks(want, got []string) string {
	for _, line := range want {
		printed := strings.TrimSpace(line) == "…"
		for _, other := range got {
			printed = printed || same(line, other)
		}
		if !printed {
			return "not printed: " + line
		}
	}
	return ""
}

// same reports whether two lines differ in nothing but values: times, sizes, numbers, identifiers.
func same(want, got string) bool {
	a, b := strings.Fields(want), strings.Fields(got)
	for i, word := range a {
		switch start, open := strings.CutSuffix(word, "…"); {
		case open && i == len(a)-1:
			return start == "" || i < len(b) && strings.HasPrefix(b[i], start)
		case i >= len(b) || word != b[i] && !(isValue(word) && isValue(b[i])):
			return false
		}
	}
	return len(a) == len(b)
}

// identifier is one of a generation, which may have no digit.
var identifier = regexp.MustCompile(`^[0-9a-f]{8}\b`)

// isValue reports whether a word is one that differs from run to run, or from machine to machine.
func isValue(word string) bool {
	return strings.ContainsAny(word, "0123456789") || identifier.MatchString(word) || word == "-" || word == "off" || strings.HasPrefix(word, "host/")
}
