package stagecheck

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/printable"
)

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err
	}
	_, err := w.Write(printable.JSON(b.Bytes()))
	return err
}

func (r Result) text(b *strings.Builder) {
	switch r.Status {
	case Passed:
		printable.Fprintf(b, "ok    %-12s %s (%s)\n", r.Check, r.Summary, round(r.Took))
	case Skipped:
		printable.Fprintf(b, "skip  %-12s %s: %s\n", r.Check, r.Summary, r.Reason)
	default:
		printable.Fprintf(b, "FAIL  %-12s %s (%s)\n        expected  %s\n        got       %s\n        see       %s\n",
			r.Check, r.Summary, round(r.Took), indent(r.Expected), indent(r.Got), r.Section)
	}
}

// indent keeps the lines of a longer text in their column.
func indent(text string) printable.Safe {
	return printable.Safe(strings.ReplaceAll(printable.Text(text), "\n", "\n                  "))
}

func (r *Report) textEnd(b *strings.Builder) {
	if len(r.Log) > 0 {
		printable.Fprintf(b, "the last of its log:\n        %s\n", printable.Safe(strings.Join(r.Log, "\n        ")))
	}
	name := r.Name
	if r.Version != "" {
		name += " " + r.Version
	}
	printable.Fprintf(b, "%s: %d passed, %d failed, %d skipped in %s\n",
		name, r.Count(Passed), r.Count(Failed), r.Count(Skipped), round(r.Took))
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// String returns the text of a single result, for progress.
func (r Result) String() string {
	var b strings.Builder
	r.text(&b)
	return b.String()
}

// Summary returns the last line of the text, after the results.
func (r *Report) Summary() string {
	var b strings.Builder
	r.textEnd(&b)
	return b.String()
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
	Log      string      `xml:"system-err,omitempty"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as CI systems read it.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name: "catena stage check " + r.Name, Tests: len(r.Results), Time: seconds(r.Took),
		Failures: r.Count(Failed), Skipped: r.Count(Skipped), Log: strings.Join(r.Log, "\n"),
	}
	for _, result := range r.Results {
		c := junitCase{Name: result.Check, Class: "catena.stage." + r.Name, Time: seconds(result.Took)}
		switch result.Status {
		case Failed:
			c.Failure = &junitMessage{
				Message: result.Summary,
				Text:    fmt.Sprintf("expected %s\ngot %s\nsee %s", result.Expected, result.Got, result.Section),
			}
		case Skipped:
			c.Skipped = &junitMessage{Message: result.Reason}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
