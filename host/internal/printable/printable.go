// Package printable makes texts that come from elsewhere, such as names of files and what stages and clients say, fit for
// terminals, tables and logs: they can neither begin a line of their own, nor control a terminal, nor change the order in which other
// text is shown (control characters, Unicode's line separators, directional and other format characters).
package printable

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Is reports whether a text is one line of characters that can be printed.
func Is(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) }

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Line returns a text as one line: tabs become spaces, and what cannot be printed is escaped as in Go. A text that is Is
// stays as it is.
func Line(s string) string { return escape(expandTabs(s), "") }

// Text is Line for each line of a text. The lines stay lines: they must be the program's own.
func Text(s string) string { return escape(s, "\n\t") }

// Lines is Line for each line of a text; all but the first are indented, so that they cannot be taken for lines of
// something else.
func Lines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = Line(strings.TrimSuffix(line, "\r"))
		if i > 0 && !strings.HasPrefix(lines[i], indent) {
			lines[i] = indent + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

const indent = "    "

func expandTabs(s string) string { return strings.ReplaceAll(s, "\t", indent) }

// escape leaves alone what can be printed, and those others.
func escape(s, others string) string {
	escaped := func(r rune) bool { return unprintable(r) && !strings.ContainsRune(others, r) }
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !strings.ContainsFunc(s, escaped) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if escaped(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// JSON returns JSON with the same meaning in which all strings can be printed.
func JSON(encoded []byte) []byte {
	var b []byte
	for _, r := range string(encoded) {
		switch {
		case r == '\n' || r == '\t' || !unprintable(r):
			b = utf8.AppendRune(b, r)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	return b
}

// Safe is a text that Fprintf and Fprintln write as it is.
type Safe string

// Fprintf is fmt.Fprintf, with each argument that is a text as a Line, and each error as Lines. An error with a method
// Items() (title string, items []error) is the title and, each from the beginning of a line, the items.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	if false {
		_ = fmt.Sprintf(format, args...) // has go vet check the arguments
	}
	return fmt.Fprintf(w, format, all(args)...)
}

// Fprintln is fmt.Fprintln, with arguments as those of Fprintf.
func Fprintln(w io.Writer, args ...any) (int, error) { return fmt.Fprintln(w, all(args)...) }

func all(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = one(arg)
	}
	return out
}

func one(arg any) any {
	switch v := arg.(type) {
	case nil:
		return nil
	case Safe:
		return string(v)
	case error:
		return errorText(v)
	case fmt.Stringer:
		return Line(v.String())
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
		return Line(v.String())
	}
	return arg
}

func errorText(err error) string {
	for {
		joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // what wraps a list has a text of its own
		if !ok || len(joined.Unwrap()) != 1 {
			break
		}
		err = joined.Unwrap()[0]
	}
	list, ok := err.(interface{ Items() (string, []error) }) //nolint:errorlint // see above
	if !ok {
		return Lines(err.Error())
	}
	title, items := list.Items()
	lines := []string{Line(title)}
	for _, item := range items {
		lines = append(lines, Lines(item.Error()))
	}
	return strings.Join(lines, "\n")
}
