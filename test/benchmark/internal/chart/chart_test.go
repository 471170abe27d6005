package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func example() Chart {
	return Chart{Title: "memory & objects", X: "ConfigMaps", Y: "PSS, MiB", Lines: []Line{
		{"kube-apiserver", []Point{{0, 300}, {50000, 900}}},
		{"Catena", []Point{{0, 200.5}, {20000, 400}, {50000, 650}}},
	}}
}

// The picture is XML in which all points are within the area of the lines.
func TestSVG(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := example().SVG(&b); err != nil {
		t.Fatal(err)
	}
	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	if elements["polyline"] != 2 || elements["circle"] != 5 {
		t.Errorf("elements %v", elements)
	}
	for _, want := range []string{"memory &amp; objects", ">Catena<", ">kube-apiserver<", ">50000<", ">800<",
		`points="80.0,246.0 `} { // 300 of 1000, at the left
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}

func TestAxis(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		most, end, step float64
		label           string // of the last tick
	}{
		{0, 1, 1, "1"}, {1, 1, 0.2, "1.0"}, {7, 8, 2, "8"}, {8, 8, 2, "8"}, {650, 800, 200, "800"},
		{2000, 2000, 500, "2000"}, {50000, 50000, 10000, "50000"}, {0.033, 0.04, 0.01, "0.04"},
	} {
		a := newAxis(test.most)
		ticks := a.ticks()
		last := ticks[len(ticks)-1]
		if near(a.end, test.end) && near(a.step, test.step) && near(last, a.end) && a.label(last) == test.label {
			continue
		}
		t.Errorf("axis of %v is %v with the last tick %s, want %v, %v, %s", test.most, a, a.label(last), test.end, test.step, test.label)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func TestCSV(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := example().CSV(&b); err != nil {
		t.Fatal(err)
	}
	want := `ConfigMaps,"kube-apiserver: PSS, MiB","Catena: PSS, MiB"
0,300,200.5
20000,,400
50000,900,650
`
	if b.String() != want {
		t.Errorf("CSV\n%s", b.String())
	}
}
