package upgrade

import (
	"fmt"
	"slices"
	"strings"
)

// tellWayBack tells until when the old process can take its place again without a loss.
func (p *Plan) tellWayBack(in Input) {
	if in.Emulated != "" {
		return // until catena upgrade finalize, which is told already
	}
	var kinds []string
	for _, f := range p.Findings {
		if f.Topic == Back {
			kinds = append(kinds, f.Name)
		}
	}
	detail := fmt.Sprintf("%s reads all that %s writes", p.From, p.To)
	if len(kinds) > 0 {
		slices.Sort(kinds)
		detail = fmt.Sprintf("until an object is written of %s", strings.Join(slices.Compact(kinds), ", "))
	}
	p.add(Finding{Topic: Back, Name: "safe", Detail: detail})
}
