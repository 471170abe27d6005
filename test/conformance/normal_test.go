package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// presence are headers whose values differ from one response to the next.
var presence = map[string]bool{
	"Audit-Id": true, "Content-Length": true, "Date": true, "Last-Modified": true,
	"X-Kubernetes-Pf-Flowschema-Uid": true, "X-Kubernetes-Pf-Prioritylevel-Uid": true,
	"Process-Start-Time-Unix": true,
}

// straddle reports whether one of two lengths is below and the other above the limit up to
// which Go's servers set the length of a response themselves. Lengths of bodies differ a
// little: resource versions have more digits in one server.
func straddle(a, b int) bool {
	for _, limit := range []int{2048, 4096} {
		if (a <= limit) != (b <= limit) {
			return true
		}
	}
	return false
}

// dropFraming removes the headers that delimit the body.
func (a *response) dropFraming() {
	a.header.Del("Content-Length")
	a.header.Del("Transfer-Encoding")
}

// text returns the response as text in which everything that may differ between two
// servers of the same kind has been replaced.
func (a *response) text(tc testCase, c *client) string {
	var out strings.Builder
	fmt.Fprintf(&out, "status: %d\n", a.status)
	if a.ended != "" {
		fmt.Fprintf(&out, "ended: %s\n", c.normalText(a.ended))
	}
	if tc.Only == "status" {
		return out.String()
	}
	for _, key := range slices.Sorted(maps.Keys(a.header)) {
		for _, value := range a.header[key] {
			if presence[key] {
				value = "(present)"
			}
			fmt.Fprintf(&out, "%s: %s\n", key, c.normalText(value))
		}
	}
	if tc.Only == "headers" {
		return out.String()
	}
	return out.String() + "\n" + c.normalBody(a, tc)
}

func (c *client) normalBody(a *response, tc testCase) string {
	body := a.body
	if a.header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(bytes.NewReader(body))
		if err == nil {
			body, err = io.ReadAll(zip)
		}
		if err != nil {
			return fmt.Sprintf("not gzip: %v", err)
		}
	}
	docs, err := decode(a.header, body, tc.Events)
	if err != nil {
		return c.normalText(string(body))
	}
	var out strings.Builder
	for _, doc := range docs {
		for _, path := range tc.Ignore {
			remove(doc, strings.Split(path, "."))
		}
		if tc.Without != "" {
			doc = without(doc, regexp.MustCompile(tc.Without))
		}
		text, err := json.MarshalIndent(c.normalValue("", doc), "", "  ")
		if err != nil {
			return err.Error()
		}
		out.Write(append(text, '\n'))
	}
	return out.String()
}

// volatile are members of objects whose values belong to one server.
var volatile = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "deletionTimestamp": true,
	"time": true, "lastTransitionTime": true, "lastUpdateTime": true, "expirationTimestamp": true,
	"continue": true, "renewTime": true, "acquireTime": true, "lastHeartbeatTime": true,
	"generatedAt": true, "caBundle": true,
}

// unordered are lists that kube-apiserver itself returns in random order.
var unordered = map[string]bool{"nonResourceRules": true, "resourceRules": true}

func (c *client) normalValue(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for member, inner := range v {
			out[c.normalText(member)] = c.normalValue(member, inner)
		}
		if prefix, ok := v["generateName"].(string); ok && prefix != "" {
			out["name"] = prefix + "(random)"
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = c.normalValue("", v[i])
		}
		if unordered[key] {
			slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return out
	case string:
		if volatile[key] && v != "" {
			return "(" + key + ")"
		}
		return c.normalText(v)
	case float64:
		if fmt.Sprint(int64(v)) == c.port() {
			return "(port)"
		}
	}
	return value
}

// replacements are tried on texts that contain their hint.
var replacements = []struct {
	hint    string
	pattern *regexp.Regexp
	with    string
}{
	{"-----BEGIN", regexp.MustCompile(`-----BEGIN [^-]+-----[^-]*-----END [^-]+-----\n?`), "(pem)\n"},
	{"eyJ", regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "(jwt)"},
	{"-4", regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "(uuid)"},
	{":", regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})`), "(time)"},
	{"kube-api-access-", regexp.MustCompile(`\b(kube-api-access-)[0-9a-z]{5}\b`), "$1(random)"},
	{"apiserver-", regexp.MustCompile(`\b(apiserver-)[0-9a-z]{26}(\b|_)`), "$1(hash)$2"},
	{"esource version", regexp.MustCompile(`(?i)(resource version:?) \d+( \(\d+\))?(, current: \d+)?`), "$1 (version)"},
	{"resourceVersion", regexp.MustCompile(`(resourceVersion\\*":\\*")\d+`), "$1(version)"},
	{"in record", regexp.MustCompile(`(in record \()\d+`), "$1(version)"},
	{"revision=", regexp.MustCompile(`(revision=)\d+`), "$1(version)"},
	{"", regexp.MustCompile(`^(\d+[smh])+$|^<invalid>$`), "(age)"},
}

func (c *client) port() string {
	_, port, _ := strings.Cut(c.vars["HOST"], ":")
	return port
}

// normalText replaces what belongs to one server.
func (c *client) normalText(text string) string {
	text = strings.ReplaceAll(text, c.vars["HOST"], "(host)")
	text = strings.ReplaceAll(text, url.QueryEscape(c.vars["HOST"]), "(host)")
	text = strings.ReplaceAll(text, ":"+c.port(), ":(port)")
	for _, r := range replacements {
		if !strings.Contains(text, r.hint) {
			continue
		}
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// without drops texts that match from all lists.
func without(value any, pattern *regexp.Regexp) any {
	switch v := value.(type) {
	case map[string]any:
		for member, inner := range v {
			v[member] = without(inner, pattern)
		}
	case []any:
		return slices.DeleteFunc(v, func(element any) bool {
			text, ok := element.(string)
			return ok && pattern.MatchString(text)
		})
	}
	return value
}

// remove deletes the value at a dotted path; * stands for all members or elements.
func remove(value any, path []string) {
	switch v := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		for member, inner := range v {
			if path[0] == "*" || path[0] == member {
				remove(inner, path[1:])
			}
		}
	case []any:
		for i := range v {
			if len(path) > 1 && (path[0] == "*" || path[0] == fmt.Sprint(i)) {
				remove(v[i], path[1:])
			}
		}
	}
}
