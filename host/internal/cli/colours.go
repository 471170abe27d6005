package cli

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/catena-dev/catena/host/internal/printable"
)

// colour is an escape sequence of a terminal. All have the same length, so that cells of a
// column that are all painted stay aligned.
type colour string

const (
	plain  colour = "\x1b[39m"
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	reset         = "\x1b[0m"
)

// colours reports whether the output is painted.
type colours bool

// coloursOf returns true for a terminal, unless the environment asks for none.
func coloursOf(out io.Writer) colours {
	return colours(isTerminal(out) && wantsColours(os.Getenv))
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// wantsColours goes by the conventions of no-color.org and bixense.com/clicolors.
func wantsColours(env func(string) string) bool {
	return env("NO_COLOR") == "" && env("CLICOLOR") != "0" && env("TERM") != "dumb"
}

// paint returns a text as a line in a colour.
func (on colours) paint(c colour, text string) printable.Safe {
	text = printable.Line(text)
	if on {
		text = string(c) + text + reset
	}
	return printable.Safe(text)
}
