package figure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// Report is what is printed.
type Report struct {
	// A and B are the names of the sides.
	A, B string
	// Parameters are with what was measured; only JSON has them.
	Parameters map[string]string
	Figures    []Figure
}

// Markdown writes the report as a table for a document.
func (r Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s | %s | ratio | range | |\n|---|---|---|---|---|---|\n", r.A, r.B)
	for _, f := range r.Figures {
		ratio, spread := "", ""
		if f.Rounds > 0 {
			ratio = fmt.Sprintf("%.2f", f.Ratio)
		}
		if f.Rounds > 1 {
			spread = fmt.Sprintf("%.2f–%.2f", f.Least, f.Most)
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s | %s |\n", f.Row, f.Name,
			number(f.A, f.MedianA), number(f.B, f.MedianB), ratio, spread, f.Verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number formats a median with three digits, or the whole number if that is longer.
func number(samples []float64, v float64) string {
	switch {
	case len(samples) == 0:
		return "–"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

// round rounds a ratio as it is printed.
func round(v float64) float64 { return math.Round(v*100) / 100 }

// JSON writes the report with all samples.
func (r Report) JSON(w io.Writer) error {
	type row struct {
		Row          string    `json:"row"`
		Quantity     string    `json:"quantity"`
		MoreIsBetter bool      `json:"moreIsBetter"`
		A            []float64 `json:"a"`
		B            []float64 `json:"b"`
		MedianA      float64   `json:"medianA"`
		MedianB      float64   `json:"medianB"`
		Ratio        float64   `json:"ratio"`
		Least        float64   `json:"least"`
		Most         float64   `json:"most"`
		Rounds       int       `json:"rounds"`
		Verdict      Verdict   `json:"verdict"`
	}
	report := struct {
		A          string            `json:"a"`
		B          string            `json:"b"`
		Parameters map[string]string `json:"parameters"`
		Rows       []row             `json:"rows"`
	}{A: r.A, B: r.B, Parameters: r.Parameters}
	for _, f := range r.Figures {
		report.Rows = append(report.Rows, row{f.Row, f.Name, f.MoreIsBetter, f.A, f.B, f.MedianA, f.MedianB,
			f.Ratio, f.Least, f.Most, f.Rounds, f.Verdict})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
