// Package percent reads and writes shares as people do, such as 5%.
package percent

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Parse returns N% as a share, 1 for 100%. It must be above 0, and at most max.
func Parse(text string, max float64) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(digits, 64)
	inRange := err == nil && n > 0 && n <= 100*max // NaN is not
	if ok && inRange {
		return n / 100, nil
	}
	hint := ""
	if inRange {
		hint = fmt.Sprintf(" (did you mean %q?)", text+"%")
	}
	return 0, fmt.Errorf("want N%% with a number above 0 and up to %g, have %q%s", 100*max, text, hint)
}

// Format writes a share with up to two decimals.
func Format(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/1e2+0, 'f', -1, 64) + "%" // + 0: there is no -0%
}
