// Package chart draws lines as SVG, and writes the figures they are drawn from as CSV.
package chart

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Chart is some lines over the same axes, which begin at 0.
type Chart struct {
	// Title is above the chart; X and Y name the axes, with their units.
	Title, X, Y string
	Lines       []Line
}

// Line is a named line. Its points are in ascending order of X, and none is negative.
type Line struct {
	Name   string
	Points []Point
}

// Point is one figure of a line.
type Point struct{ X, Y float64 }

// The drawing, in pixels: the area of the lines and what is around it.
const (
	width, height             = 720, 420
	left, right, top, bottom  = 80, 20, 50, 90
	plotWidth, plotHeight     = width - left - right, height - top - bottom
	wantedTicks               = 6
	legendWidth, legendHeight = 200, 16
)

// color and dash are how a line is drawn: lines can be told apart without colors too.
func color(i int) string { return []string{"#1f5fa8", "#d1600f", "#2f8f4e", "#7a4fa3"}[i%4] }

func dash(i int) string { return []string{"none", "7 3", "2 3", "9 3 2 3"}[i%4] }

// SVG writes the chart as a picture.
func (c Chart) SVG(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(&b, width/2, 26, "middle", `font-size="15"`, c.Title)
	s := newScale(c.Lines)
	s.axes(&b, c.X, c.Y)
	for i, l := range c.Lines {
		s.line(&b, i, l)
		legend(&b, i, l.Name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// text adds a text at a place, with more attributes.
func text(b *strings.Builder, x, y float64, anchor, attributes, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>`, x, y, anchor, attributes)
	_ = xml.EscapeText(b, []byte(s)) // a Builder does not fail
	b.WriteString("</text>\n")
}

// scale turns figures into pixels.
type scale struct{ x, y axis }

func newScale(lines []Line) scale {
	var mostX, mostY float64
	for _, l := range lines {
		for _, p := range l.Points {
			mostX, mostY = max(mostX, p.X), max(mostY, p.Y)
		}
	}
	return scale{newAxis(mostX), newAxis(mostY)}
}

func (s scale) px(x float64) float64 { return left + plotWidth*x/s.x.end }

func (s scale) py(y float64) float64 { return top + plotHeight*(1-y/s.y.end) }

// axes draws the axes with ticks, grid and names.
func (s scale) axes(b *strings.Builder, nameX, nameY string) {
	const grid = `stroke="#dddddd"`
	for _, v := range s.x.ticks() {
		fmt.Fprintf(b, `<path d="M%.1f %d v%d" %s/>`+"\n", s.px(v), top, plotHeight, grid)
		text(b, s.px(v), top+plotHeight+18, "middle", "", s.x.label(v))
	}
	for _, v := range s.y.ticks() {
		fmt.Fprintf(b, `<path d="M%d %.1f h%d" %s/>`+"\n", left, s.py(v), plotWidth, grid)
		text(b, left-8, s.py(v)+4, "end", "", s.y.label(v))
	}
	fmt.Fprintf(b, `<path d="M%d %d v%d h%d" fill="none" stroke="black"/>`+"\n", left, top, plotHeight, plotWidth)
	text(b, left+plotWidth/2, top+plotHeight+40, "middle", "", nameX)
	text(b, 0, 0, "middle", fmt.Sprintf(`transform="translate(20 %d) rotate(-90)"`, top+plotHeight/2), nameY)
}

func (s scale) line(b *strings.Builder, i int, l Line) {
	var points []string
	for _, p := range l.Points {
		points = append(points, fmt.Sprintf("%.1f,%.1f", s.px(p.X), s.py(p.Y)))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke-width="2" stroke="%s" stroke-dasharray="%s"/>`+"\n",
		strings.Join(points, " "), color(i), dash(i))
	for _, p := range l.Points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", s.px(p.X), s.py(p.Y), color(i))
	}
}

// legend names a line below the chart.
func legend(b *strings.Builder, i int, name string) {
	x, y := float64(left+i%3*legendWidth), float64(height-28+i/3*legendHeight)
	fmt.Fprintf(b, `<path d="M%.1f %.1f h24" stroke-width="2" stroke="%s" stroke-dasharray="%s"/>`+"\n", x, y-4, color(i), dash(i))
	text(b, x+30, y, "start", "", name)
}

// axis is from 0 to end, with a tick at each step.
type axis struct{ end, step float64 }

// newAxis returns an axis that has room for the largest figure, with ticks at round numbers.
func newAxis(most float64) axis {
	if most <= 0 {
		return axis{1, 1}
	}
	power := math.Pow(10, math.Floor(math.Log10(most/wantedTicks)))
	step := 10 * power
	for _, factor := range []float64{1, 2, 5} {
		if most/(factor*power) <= wantedTicks {
			step = factor * power
			break
		}
	}
	return axis{math.Ceil(most/step) * step, step}
}

func (a axis) ticks() []float64 {
	var all []float64
	for i := range int(math.Round(a.end/a.step)) + 1 {
		all = append(all, float64(i)*a.step)
	}
	return all
}

// label writes a tick with as many digits as steps need.
func (a axis) label(v float64) string {
	return strconv.FormatFloat(v, 'f', max(0, -int(math.Floor(math.Log10(a.step)))), 64)
}

// CSV writes a table with a row for each X and a column for each line, empty where a line has no point.
func (c Chart) CSV(w io.Writer) error {
	header := []string{c.X}
	var all []float64
	for _, l := range c.Lines {
		header = append(header, l.Name+": "+c.Y)
		for _, p := range l.Points {
			all = append(all, p.X)
		}
	}
	slices.Sort(all)
	out := csv.NewWriter(w)
	_ = out.Write(header) // Error has it
	for _, x := range slices.Compact(all) {
		row := []string{number(x)}
		for _, l := range c.Lines {
			cell := ""
			if i := slices.IndexFunc(l.Points, func(p Point) bool { return p.X == x }); i >= 0 {
				cell = number(l.Points[i].Y)
			}
			row = append(row, cell)
		}
		_ = out.Write(row)
	}
	out.Flush()
	return out.Error()
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
