package shadow

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var page string

// WriteHTML writes the report as one page that needs no other file.
func (r *Report) WriteHTML(out io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{"percent": func(share float64) string { return fmt.Sprintf("%g%%", share*100) }}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(out, r)
}
