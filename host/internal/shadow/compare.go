package shadow

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Response is what a generation responds.
type Response struct {
	// Status is 0 if there was no response.
	Status int
	Header http.Header
	Body   []byte
}

// How a field differs.
const (
	Missing = "missing" // it is in the old response alone
	Added   = "added"   // it is in the new response alone
	Changed = "changed"
)

// difference is one field in which two responses differ.
type difference struct {
	// path is that of the field: in an object, with [] in place of what is an index or a key of data;
	// "(status code)"; or "(header NAME)".
	path string
	how  string
	// old and new are the values as JSON, shortened; empty where a side has no value.
	old, new string
}

// statusCode is the path of the status of a response.
const statusCode = "(status code)"

// compared are the headers that clients read and that come from the stage.
var compared = []string{"Content-Type", "Warning", "Etag", "Cache-Control", "Location", "Retry-After", "Www-Authenticate", "Vary"}

// differences returns how two responses to a request differ, each field once.
func differences(old, next Response) []difference {
	if old.Status != next.Status {
		return []difference{{path: statusCode, how: Changed, old: strconv.Itoa(old.Status), new: strconv.Itoa(next.Status)}}
	}
	var d differ
	for _, key := range compared {
		d.header(key, old.Header.Values(key), next.Header.Values(key))
	}
	if string(old.Body) != string(next.Body) {
		var a, b any
		if decode(old.Body, &a) != nil || decode(next.Body, &b) != nil {
			d.add("(body)", Changed, fmt.Sprintf("%d bytes", len(old.Body)), fmt.Sprintf("%d bytes", len(next.Body)))
		} else {
			d.value("", withoutTokens(a), withoutTokens(b))
		}
	}
	return d.all
}

// differ collects differences.
type differ struct {
	all  []difference
	seen map[[2]string]bool
}

func (d *differ) add(path, how string, old, next any) {
	if d.seen == nil {
		d.seen = map[[2]string]bool{}
	}
	if d.seen[[2]string{path, how}] {
		return
	}
	d.seen[[2]string{path, how}] = true
	found := difference{path: strings.TrimPrefix(path, "."), how: how}
	if how != Added {
		found.old = text(redact(path, old))
	}
	if how != Missing {
		found.new = text(redact(path, next))
	}
	d.all = append(d.all, found)
}

// maxValue bounds an example of a value, in bytes.
const maxValue = 200

func text(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err.Error()
	}
	s := strings.TrimSuffix(b.String(), "\n")
	if len(s) > maxValue {
		return strings.ToValidUTF8(s[:maxValue], "") + "…"
	}
	return s
}

func (d *differ) header(key string, old, next []string) {
	path := "(header " + key + ")"
	switch {
	case slices.Equal(old, next):
	case len(next) == 0:
		d.add(path, Missing, old, nil)
	case len(old) == 0:
		d.add(path, Added, nil, next)
	default:
		d.add(path, Changed, old, next)
	}
}

func (d *differ) value(path string, old, next any) {
	switch a := old.(type) {
	case map[string]any:
		if b, ok := next.(map[string]any); ok {
			d.object(path, a, b)
			return
		}
	case []any:
		if b, ok := next.([]any); ok {
			d.list(path, a, b)
			return
		}
	default:
		switch next.(type) {
		case map[string]any, []any:
		default:
			if old == next {
				return
			}
		}
	}
	d.add(path, Changed, old, next)
}

func (d *differ) object(path string, old, next map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(old)) {
		below := member(path, key)
		if after, ok := next[key]; ok {
			d.value(below, old[key], after)
		} else {
			d.add(below, Missing, old[key], nil)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		if _, ok := old[key]; !ok {
			d.add(member(path, key), Added, nil, next[key])
		}
	}
}

// member returns the path of a member of an object. Keys of data are not fields.
func member(path, key string) string {
	switch path {
	case ".data", ".binaryData", ".stringData":
		return path + "[]"
	}
	if strings.ContainsAny(key, "./[]() ") || key == "" {
		return path + "[" + key + "]"
	}
	return path + "." + key
}

// list compares elements with the same key, or else those with the same index. The elements of a list of objects have the paths
// of the objects, so that a field is the same in a list and by itself.
func (d *differ) list(path string, old, next []any) {
	element := path + "[]"
	below := element
	if path == ".items" {
		below = ""
	}
	before, inOrder := keyed(old)
	after, alsoInOrder := keyed(next)
	if before == nil || after == nil {
		if len(old) != len(next) {
			how := Missing
			if len(old) < len(next) {
				how = Added
			}
			d.add(element, how, old[min(len(next), len(old)):], next[min(len(next), len(old)):])
			return
		}
		for i := range old {
			d.value(below, old[i], next[i])
		}
		return
	}
	same := len(before) == len(after)
	for _, key := range inOrder {
		if b, ok := after[key]; ok {
			d.value(below, before[key], b)
		} else {
			same = false
			d.add(element, Missing, before[key], nil)
		}
	}
	for _, key := range alsoInOrder {
		if _, ok := before[key]; !ok {
			d.add(element, Added, nil, after[key])
		}
	}
	if same && !slices.Equal(inOrder, alsoInOrder) {
		d.add(element+"(order)", Changed, inOrder, alsoInOrder)
	}
}

// keyed returns the elements of a list of objects by what identifies them, and the keys in the order of the list. It is nil if
// there is nothing that identifies each.
func keyed(list []any) (map[string]any, []string) {
	for _, key := range []func(map[string]any) string{ofMetadata, ofField("name"), ofField("type"), ofField("key"),
		ofField("uid"), ofField("groupVersion"), ofField("version")} {
		all, inOrder := map[string]any{}, []string{}
		for _, element := range list {
			object, _ := element.(map[string]any)
			k := key(object)
			if _, twice := all[k]; k == "" || twice {
				break
			}
			all[k], inOrder = element, append(inOrder, k)
		}
		if len(all) == len(list) {
			return all, inOrder
		}
	}
	return nil, nil
}

func ofField(name string) func(map[string]any) string {
	return func(object map[string]any) string {
		value, _ := object[name].(string)
		return value
	}
}

func ofMetadata(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name := ofField("name")(metadata)
	if name == "" {
		return ""
	}
	return ofField("namespace")(metadata) + "/" + name
}

// withoutTokens returns a response without what is the server's own: where a list goes on is in a token that depends on whether it was read
// from the cache. The cells of a table are by the names of their columns, so that one column is one field.
func withoutTokens(value any) any {
	object, _ := value.(map[string]any)
	if metadata, _ := object["metadata"].(map[string]any); ofField("continue")(metadata) != "" {
		metadata["continue"] = "(token)"
	}
	if object["kind"] == "Table" {
		nameCells(object)
	}
	return value
}

func nameCells(table map[string]any) {
	columns, _ := table["columnDefinitions"].([]any)
	rows, _ := table["rows"].([]any)
	for _, r := range rows {
		row, _ := r.(map[string]any)
		cells, ok := row["cells"].([]any)
		if !ok || len(cells) != len(columns) {
			continue
		}
		byName := map[string]any{}
		for i, c := range columns {
			column, _ := c.(map[string]any)
			byName[ofField("name")(column)] = cells[i]
		}
		row["cells"] = byName
	}
}
