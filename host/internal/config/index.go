package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
)

// indexYAML notes the line of each key. It reports keys that are set twice and
// documents that the parser would ignore.
func indexYAML(l *layer, data []byte, p *problems) {
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc yamlv3.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			p.addParse(l.source, data, err)
		}
		return
	}
	if root := doc.Content[0]; root.Kind != yamlv3.MappingNode && root.Tag != "!!null" {
		p.addFile(l.source, root.Line, "%s", wantMapping)
		return
	}
	x := &index{layer: l, problems: p}
	x.yaml(&doc, nil)
	var rest yamlv3.Node
	switch err := dec.Decode(&rest); {
	case err == nil:
		p.addFile(l.source, rest.Line, "a second document begins here: a file holds one")
	case !errors.Is(err, io.EOF):
		p.addParse(l.source, data, err)
	}
}

const wantMapping = "want keys with their values"

type index struct {
	layer    *layer
	problems *problems
}

// note keeps the line of path. It reports a path that is set twice.
func (x *index) note(path []string, line int) {
	key := dotted(path)
	if first, twice := x.layer.lines[key]; twice {
		x.problems.list = append(x.problems.list, &Problem{Source: x.layer.source, Line: line, Key: key,
			Message: "set a second time; line " + strconv.Itoa(first) + " has it too"})
		return
	}
	x.layer.lines[key] = line
}

// yaml walks the nodes of the document. Aliases have the lines of their anchors.
func (x *index) yaml(n *yamlv3.Node, path []string) {
	switch n.Kind {
	case yamlv3.DocumentNode:
		for _, child := range n.Content {
			x.yaml(child, path)
		}
	case yamlv3.SequenceNode:
		for i, child := range n.Content {
			x.yaml(child, join(path, strconv.Itoa(i)))
		}
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			at := join(path, key.Value)
			if key.Kind != yamlv3.ScalarNode {
				x.problems.addFile(x.layer.source, key.Line, "a key has to be a word")
				continue
			}
			if key.Tag != "!!merge" {
				x.note(at, key.Line)
			}
			if value.Kind == yamlv3.ScalarNode && value.Tag == "!!null" && value.Value == "" {
				x.layer.empty[dotted(at)] = true
			}
			x.yaml(value, at)
		}
	}
}

// indexJSON notes the line of each key. It reports keys that are set twice and
// numbers that would lose digits. Errors of syntax are left to the parser.
func indexJSON(l *layer, data []byte, p *problems) {
	if !json.Valid(data) {
		return
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		p.addFile(l.source, 1, "%s", wantMapping)
		return
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	x := &jsonIndex{index: index{layer: l, problems: p}, dec: dec, data: data}
	x.value(nil)
}

type jsonIndex struct {
	index
	dec  *json.Decoder
	data []byte
}

func (x *jsonIndex) value(path []string) {
	token, err := x.dec.Token()
	if err != nil {
		return
	}
	switch token {
	case json.Delim('{'):
		for x.dec.More() {
			name, _ := x.dec.Token()
			at := join(path, name.(string))
			x.note(at, lineAt(x.data, x.dec.InputOffset()))
			x.value(at)
		}
	case json.Delim('['):
		for i := 0; x.dec.More(); i++ {
			x.value(join(path, strconv.Itoa(i)))
		}
	default:
		if number, ok := token.(json.Number); ok && losesDigits(number) {
			x.problems.add(x.layer, path, "the number %s loses digits in JSON: put it in quotes", number)
		}
		return
	}
	_, _ = x.dec.Token() // the closing bracket
}

// jsonOffset returns where in the data an error of encoding/json is.
func jsonOffset(err error) (int64, bool) {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return syntax.Offset, true
	}
	return 0, false
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte("\n"))
}
