package shadow

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/printable"
)

// Report is what a comparison has found.
type Report struct {
	Stage  string `json:"stage"`
	Binary string `json:"binary"`
	// From and To are the versions of the two generations.
	From string `json:"from"`
	To   string `json:"to"`
	// Sample is the share of the requests that are compared.
	Sample float64 `json:"sample"`
	// Writes reports whether writes are compared too.
	Writes bool      `json:"writes"`
	Began  time.Time `json:"began"`
	// Until is when it ends by itself.
	Until time.Time `json:"until"`
	// Ended is zero as long as the comparison goes on, and Why says why it has ended.
	Ended time.Time `json:"ended,omitzero"`
	Why   string    `json:"why,omitempty"`
	// Results counts requests by what became of them.
	Results map[string]int64 `json:"results"`
	// Reasons counts requests without a response, and writes that were not sent, by the reason.
	Reasons map[string]int64 `json:"reasons,omitempty"`
	// Groups are the differences, those that were found most often first.
	Groups []Group `json:"groups"`
	// MoreGroups counts differences of fields for which there was no room.
	MoreGroups int64 `json:"moreGroups,omitempty"`
	// Noise are fields that are not compared, because they differ between two responses of one generation.
	Noise []string `json:"noise,omitempty"`
}

// Group is a field of a resource in which the generations differ.
type Group struct {
	// Resource is RESOURCE.GROUP/VERSION, with " (dry run)" for a write, or "discovery and OpenAPI".
	Resource string `json:"resource"`
	// Path is that of the field in the object, "(status code)" or "(header NAME)".
	Path string `json:"path"`
	// How is missing, added or changed.
	How   string `json:"how"`
	Count int64  `json:"count"`
	// Example is one of them.
	Example Example `json:"example"`
}

// Example is a request whose responses differ, with the values as JSON. They are shortened, and masked if they may be secret.
type Example struct {
	Request string    `json:"request"`
	Old     string    `json:"old,omitempty"`
	New     string    `json:"new,omitempty"`
	At      time.Time `json:"at"`
}

type groupKey struct{ label, path, how string }

const (
	// maxGroups bounds the fields of a report, maxNoise those that are not compared, maxReasons why requests are not.
	maxGroups  = 500
	maxNoise   = 500
	maxReasons = 20
	// maxRequest bounds the request of an example, in bytes.
	maxRequest = 300
)

// label is what a group calls what the request is about. Writes are by themselves, as a dry run makes up other values each time.
func (q Request) label() string {
	switch {
	case q.Resource.Name == "":
		return "discovery and OpenAPI"
	case q.isWrite():
		return q.Resource.String() + " (dry run)"
	}
	return q.Resource.String()
}

func (s *Shadow) record(q Request, result string, found []difference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Results[result]++
	for _, d := range found {
		if s.opts.Secret(q.Resource) {
			d = d.mask()
		}
		key := groupKey{q.label(), d.path, d.how}
		if s.noise.covers(key.label, key.path) {
			continue
		}
		g := s.groups[key]
		if g == nil {
			if len(s.groups) == maxGroups {
				s.report.MoreGroups++
				continue
			}
			request := q.Method + " " + q.URL.RequestURI()
			g = &Group{Resource: key.label, Path: d.path, How: d.how, Example: Example{
				Request: strings.ToValidUTF8(request[:min(len(request), maxRequest)], ""), Old: d.old, New: d.new, At: time.Now(),
			}}
			s.groups[key] = g
		}
		g.Count++
	}
}

// because takes note of why a request was not compared.
func (s *Shadow) because(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report.Reasons == nil {
		s.report.Reasons = map[string]int64{}
	}
	if s.report.Reasons[why] == 0 && len(s.report.Reasons) >= maxReasons {
		why = "other reasons"
	}
	s.report.Reasons[why]++
}

// Report returns what has been found so far.
func (s *Shadow) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Results, r.Reasons = maps.Clone(r.Results), maps.Clone(r.Reasons)
	if n := s.dropped.Load(); n > 0 {
		r.Results[Dropped] = n
	}
	r.Noise = slices.Sorted(slices.Values(r.Noise[:min(len(r.Noise), maxNoise)]))
	r.Groups = []Group{}
	for _, g := range s.groups {
		r.Groups = append(r.Groups, *g)
	}
	slices.SortFunc(r.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.How, b.How))
	})
	return r
}

// Summary is the state of a comparison in short.
type Summary struct {
	Stage     string    `json:"stage"`
	Binary    string    `json:"binary"`
	Until     time.Time `json:"until"`
	Compared  int64     `json:"compared"`
	Different int64     `json:"different"`
}

// Summary returns the state of a comparison, nil if it has ended.
func (s *Shadow) Summary() *Summary {
	if s.ctx.Err() != nil {
		return nil
	}
	r := s.Report()
	return &Summary{Stage: r.Stage, Binary: r.Binary, Until: r.Until, Compared: r.Compared(), Different: r.Results[Different]}
}

// Compared is how many requests were compared.
func (r *Report) Compared() int64 { return r.Results[Equal] + r.Results[Different] }

// Ran is for how long requests have been compared.
func (r *Report) Ran() time.Duration {
	if r.Ended.IsZero() {
		return time.Since(r.Began).Round(time.Second)
	}
	return r.Ended.Sub(r.Began).Round(time.Second)
}

// Counts returns the results that there are, for people.
func (r *Report) Counts() string {
	var parts []string
	for _, result := range Results() {
		if n := r.Results[result]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, result))
		}
	}
	if len(parts) == 0 {
		return "no request yet"
	}
	return strings.Join(parts, ", ")
}

// State describes whether the comparison goes on, for people.
func (r *Report) State() string {
	if r.Ended.IsZero() {
		return fmt.Sprintf("running for %s, until %s", r.Ran(), r.Until.Format(time.RFC3339))
	}
	return fmt.Sprintf("ended after %s: %s", r.Ran(), r.Why)
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	printable.Fprintf(&b, "%s: %s → %s (%s), %g%% of the requests\n", r.Stage, r.From, r.To, r.Binary, r.Sample*100)
	printable.Fprintf(&b, "%s\n%s\n", r.State(), r.Counts())
	for _, why := range slices.Sorted(maps.Keys(r.Reasons)) {
		printable.Fprintf(&b, "%d not compared: %s\n", r.Reasons[why], why)
	}
	for _, g := range r.Groups {
		printable.Fprintf(&b, "\n%s: %s: %s, %d times\n    %s\n", g.Resource, g.Path, g.How, g.Count, g.Example.Request)
		if g.Example.Old != "" {
			printable.Fprintf(&b, "    - %s\n", g.Example.Old)
		}
		if g.Example.New != "" {
			printable.Fprintf(&b, "    + %s\n", g.Example.New)
		}
	}
	if r.MoreGroups > 0 {
		printable.Fprintf(&b, "\n%d differences of more fields are not listed\n", r.MoreGroups)
	}
	if n := len(r.Noise); n > 0 {
		printable.Fprintf(&b, "\n%d fields are not compared, since they differ between two responses of one process; -o json lists them\n", n)
	}
	if r.Compared() > 0 && len(r.Groups) == 0 && r.MoreGroups == 0 {
		b.WriteString("no differences\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
