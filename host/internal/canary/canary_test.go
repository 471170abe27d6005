package canary

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	p, err := NewPlan("5%", []string{"25%", "50.5%"}, time.Minute, User)
	if err != nil || fmt.Sprint(p.Shares) != "[0.05 0.25 0.505 1]" || p.Validate() != nil {
		t.Errorf("%v, %v, %v", p, err, p.Validate())
	}
	if p, err := NewPlan("100%", nil, time.Minute, Client); err != nil || len(p.Shares) != 1 {
		t.Errorf("%v, %v", p, err)
	}
	for _, c := range []struct {
		first string
		then  []string
		each  time.Duration
		by    By
		want  string
	}{
		{"5", nil, time.Minute, User,
			`--canary: want N% with a number above 0 and up to 100, have "5" (did you mean "5%"?)`},
		{"0%", nil, time.Minute, User, "--canary: want N%"},
		{"NaN%", nil, time.Minute, User, "--canary: want N%"},
		{"5%", []string{"5%"}, time.Minute, User, "--then: 5% is not above the share before it"},
		{"5%", []string{"101%"}, time.Minute, User, "--then: want N%"},
		{"5%", nil, 0, User, "--for 0s: must be above 0"},
		{"5%", nil, time.Minute, "pod", `--by: want user, namespace or client, have "pod"`},
	} {
		if _, err := NewPlan(c.first, c.then, c.each, c.by); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, p := range []Plan{{}, {Shares: []float64{0.5}, For: 1, By: User}, {Shares: []float64{1}, By: User}, {Shares: []float64{1, 0.5, 1}, For: 1, By: User}, {Shares: []float64{1}, For: 1}} {
		if p.Validate() == nil {
			t.Errorf("%v is valid", p)
		}
	}
}

func TestIncludes(t *testing.T) {
	const clients = 20_000
	before := map[string]bool{}
	for _, share := range []float64{0.05, 0.25, 1} {
		n := 0
		for i := range clients {
			key := fmt.Sprintf("system:node:worker-%d", i)
			in := Includes(key, share)
			if in {
				n++
			}
			if before[key] && !in {
				t.Fatalf("%s goes back when the share grows to %g", key, share)
			}
			before[key] = in
		}
		if got := float64(n) / clients; math.Abs(got-share) > 0.01 {
			t.Errorf("%g of the clients are included, want %g", got, share)
		}
	}
}

func TestCompare(t *testing.T) {
	var c Comparison
	add := func(side Side, verb string, n int, o Outcome) {
		for range n {
			c.Add(side, Kind{verb, "pods"}, o)
		}
	}
	ms := func(n int) Outcome { return Outcome{Took: time.Duration(n) * time.Millisecond} }
	// The new side has other clients: they list more, which takes longer and is no difference.
	add(Old, "get", 1000, ms(1))
	add(Old, "list", 100, ms(50))
	add(New, "get", 20, ms(1))
	add(New, "list", 80, ms(50))
	if d := Compare(c.Rows()); d.Latency > 1e-9 || d.Failed != 0 || d.Refused != 0 || d.New.Requests != 100 {
		t.Errorf("no difference: %+v", d)
	}
	add(Old, "create", 99, ms(10))
	add(Old, "create", 1, Outcome{Failed: true, Took: time.Millisecond * 10})
	add(New, "create", 95, ms(15))
	add(New, "create", 1, Outcome{Failed: true, Took: 15 * time.Millisecond})
	add(New, "create", 4, Outcome{Refused: true, Took: 15 * time.Millisecond})
	d := Compare(c.Rows())
	if math.Abs(d.Failed) > 1e-9 || math.Abs(d.Refused-0.02) > 1e-9 || d.Latency < 0.05 || d.Latency > 0.15 {
		t.Errorf("%+v", d)
	}
	for _, l := range []struct {
		Limits
		want string
	}{
		{Limits{}, ""}, {Limits{Failed: 0.001}, ""},
		{Limits{Refused: 0.01}, "4 of 200 requests to the new process were refused, which is 2% more than those to the old one (the limit is 1%)"},
		{Limits{Latency: 0.01}, "longer than the same to the old one (the limit is 1%)"},
	} {
		if got := l.Exceeded(d); (got == "") != (l.want == "") || !strings.Contains(got, l.want) {
			t.Errorf("%+v: %q, want %q", l.Limits, got, l.want)
		}
	}
}

func TestCompareWithTooFew(t *testing.T) {
	var c Comparison
	for range LeastRequests - 1 {
		c.Add(New, Kind{"get", "pods"}, Outcome{Failed: true})
	}
	limits := Limits{Failed: 0.01, Refused: 0.01}
	c.Add(Old, Kind{"get", "pods"}, Outcome{})
	if d := Compare(c.Rows()); limits.Exceeded(d) != "" {
		t.Errorf("%+v", d)
	}
	c.Add(New, Kind{"get", "pods"}, Outcome{Failed: true})
	d := Compare(c.Rows())
	const want = "20 of 20 requests to the new process, of kinds of which the old one has had too few, were errors " +
		"(the limit is 1%)"
	if d.Says() || d.Failed != 0 || limits.Exceeded(d) != want {
		t.Errorf("%+v: %q", d, limits.Exceeded(d))
	}
}

// What only the new side has had is compared with nothing: not with other kinds, and not with none.
func TestCompareOnlyWhatBothHaveHad(t *testing.T) {
	var c Comparison
	add := func(side Side, resource string, n int, o Outcome) {
		for range n {
			c.Add(side, Kind{"get", resource}, o)
		}
	}
	add(New, "pods", 100, Outcome{Took: time.Second})
	if d := Compare(c.Rows()); d.Says() || d.Compared != 0 || d.Alone.Requests != 100 {
		t.Errorf("the new side alone: %+v", d)
	}
	add(Old, "secrets", 100, Outcome{Failed: true, Took: time.Millisecond})
	if d := Compare(c.Rows()); d.Says() || d.Failed != 0 {
		t.Errorf("other kinds: %+v", d)
	}
	// Few of each kind on the old side, and enough of all together, of which half have failed; on the new side one in
	// four.
	for i := range 10 {
		add(Old, fmt.Sprint("few", i), 2, Outcome{})
		add(Old, fmt.Sprint("few", i), 2, Outcome{Failed: true})
		add(New, fmt.Sprint("few", i), 3, Outcome{})
		add(New, fmt.Sprint("few", i), 1, Outcome{Failed: true})
	}
	d := Compare(c.Rows())
	if !d.Says() || d.Compared != 40 || math.Abs(d.Failed+0.25) > 1e-9 || d.Alone.Requests != 100 {
		t.Errorf("few of each kind: %+v", d)
	}
}

func TestKindsAreBounded(t *testing.T) {
	var c Comparison
	for i := range 2 * maxKinds {
		c.Add(New, Kind{"get", fmt.Sprint(i)}, Outcome{})
	}
	if n := len(c.Rows()); n != maxKinds+1 {
		t.Errorf("%d kinds", n)
	}
}
