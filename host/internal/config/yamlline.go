package config

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// yamlLine matches the line in an error of yaml.v3.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s+)?line (\d+): `)

// yamlParserError matches the errors of yaml.v3's parser, whose lines are counted from 0. Those
// of its scanner, and of decoding, are counted from 1.
var yamlParserError = regexp.MustCompile(`^did not find expected (<stream-start>|<document start>|node content|'-' indicator|key|',' or '[\]}]')|^found (undefined tag handle|duplicate %|incompatible YAML)`)

// yamlAnchor matches the error of an alias without an anchor, which has no line.
var yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)

// yamlProblem returns the message of an error of yaml.v3 and its line, 0 if it is not known.
func yamlProblem(data []byte, text string) (message string, line int) {
	message = strings.TrimPrefix(text, "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = text[len(m[0]):]
	}
	switch m := yamlAnchor.FindStringSubmatch(message); {
	case m != nil:
		line = lineOf(data, regexp.MustCompile(`\*`+regexp.QuoteMeta(m[1])+`(?:\W|$)`).FindIndex(data))
	case yamlParserError.MatchString(message):
		line = min(parserLine(data, message, line), 1+bytes.Count(bytes.TrimRight(data, "\n"), []byte("\n")))
	case line == 0:
		line = lineOf(data, unreadable(data))
	}
	return message, line
}

// parserLine returns the line of an error of the parser, which reports the line before it, or before
// the construct around it unless that is at the beginning. So the text from that construct on
// is parsed once more.
func parserLine(data []byte, message string, line int) int {
	rest := data
	for range line {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	err := yamlv3.Unmarshal(rest, new(yamlv3.Node))
	if err == nil || line == 0 {
		return line + 1
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil || err.Error() != m[0]+message {
		return line + 1
	}
	more, _ := strconv.Atoi(m[1])
	return line + more + 1
}

// unreadable returns the position of the first byte that is no text, or nil.
func unreadable(data []byte) []int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r) {
			return []int{i}
		}
		i += size
	}
	return nil
}

// lineOf returns the line of a position in data, 0 for nil.
func lineOf(data []byte, position []int) int {
	if position == nil {
		return 0
	}
	return lineAt(data, int64(position[0]))
}
