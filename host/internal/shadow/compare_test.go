package shadow

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func respond(body string) Response {
	return Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"equal":        {`{"a": 1, "b": [1, 2]}`, `{"b":[1,2],"a":1}`, nil},
		"default":      {`{"spec": {"a": 10}}`, `{"spec": {"a": 3}}`, []string{"spec.a changed 10 3"}},
		"missing":      {`{"spec": {"a": "x"}}`, `{"spec": {}}`, []string{`spec.a missing "x" `}},
		"added":        {`{}`, `{"a": {"b": 1}}`, []string{`a added  {"b":1}`}},
		"type":         {`{"a": "1"}`, `{"a": 1}`, []string{`a changed "1" 1`}},
		"null":         {`{"a": null}`, `{"a": {}}`, []string{`a changed null {}`}},
		"large number": {`{"a": 9007199254740993}`, `{"a": 9007199254740992}`, []string{"a changed 9007199254740993 9007199254740992"}},
		"by name": {`{"l": [{"name": "a", "v": 1}, {"name": "b", "v": 1}]}`, `{"l": [{"name": "a", "v": 1}, {"name": "c", "v": 1}]}`,
			[]string{`l[] missing {"name":"b","v":1} `, `l[] added  {"name":"c","v":1}`}},
		"by index":       {`{"l": [1, 2]}`, `{"l": [1, 3]}`, []string{"l[] changed 2 3"}},
		"fewer":          {`{"l": [1, 2]}`, `{"l": [1]}`, []string{"l[] missing [2] "}},
		"order":          {`{"l": [{"name": "a"}, {"name": "b"}]}`, `{"l": [{"name": "b"}, {"name": "a"}]}`, []string{`l[](order) changed ["a","b"] ["b","a"]`}},
		"once per field": {`{"l": [{"name": "a", "v": 1}, {"name": "b", "v": 1}]}`, `{"l": [{"name": "a", "v": 2}, {"name": "b", "v": 2}]}`, []string{"l[].v changed 1 2"}},
		"items of a list": {`{"kind": "List", "items": [{"metadata": {"name": "a"}, "spec": {"x": 1}}]}`, `{"kind": "List", "items": [{"metadata": {"name": "a"}, "spec": {"x": 2}}]}`,
			[]string{"spec.x changed 1 2"}},
		"an object less": {`{"items": [{"metadata": {"name": "a"}}]}`, `{"items": []}`, []string{`items[] missing {"metadata":{"name":"a"}} `}},
		"keys of data":   {`{"data": {"a": "1", "b": "2"}}`, `{"data": {"a": "2", "b": "3"}}`, []string{`data[] changed "1" "2"`}},
		"odd keys":       {`{"metadata": {"labels": {"a/b.c": "1"}}}`, `{"metadata": {"labels": {"a/b.c": "2"}}}`, []string{`metadata.labels[a/b.c] changed "1" "2"`}},
		"cells of a table": {`{"kind": "Table", "columnDefinitions": [{"name": "Age"}, {"name": "Name"}], "rows": [{"cells": ["1s", "a"]}]}`,
			`{"kind": "Table", "columnDefinitions": [{"name": "Age"}, {"name": "Name"}], "rows": [{"cells": ["2s", "a"]}]}`, []string{`rows[].cells.Age changed "1s" "2s"`}},
		"the next page": {`{"metadata": {"continue": "a"}}`, `{"metadata": {"continue": "b"}}`, nil},
		"no next page":  {`{"metadata": {"continue": "a"}}`, `{"metadata": {}}`, []string{`metadata.continue missing "(token)" `}},
		"no JSON":       {`a`, `b!`, []string{`(body) changed "1 bytes" "2 bytes"`}},
		"a token":       {`{"status": {"token": "t1"}}`, `{"status": {"token": "t2"}}`, []string{`status.token changed "(masked)" "(masked)"`}},
		"env":           {`{"env": [{"name": "A", "value": "s1"}]}`, `{"env": [{"name": "A", "value": "s2"}]}`, []string{`env[].value changed "(masked)" "(masked)"`}},
		"whole":         {`{"spec": {"password": "p", "secretName": "n"}}`, `{}`, []string{`spec missing {"password":"(masked)","secretName":"n"} `}},
		"all of a":      {`{"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "s"}}}`, `{"metadata": {"annotations": {}}}`, []string{`metadata.annotations[kubectl.kubernetes.io/last-applied-configuration] missing "(masked)" `}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range differences(respond(c.old), respond(c.new)) {
				got = append(got, fmt.Sprintf("%s %s %s %s", d.path, d.how, d.old, d.new))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestDifferencesOfHeads(t *testing.T) {
	t.Parallel()
	old, next := respond(`{}`), respond(`{}`)
	old.Header.Set("Warning", "299 - x")
	next.Header.Set("Etag", "y")
	next.Header.Set("Audit-Id", "z") // not of the stage
	next.Header.Set("Content-Type", "text/plain")
	var got []string
	for _, d := range differences(old, next) {
		got = append(got, d.path+" "+d.how)
	}
	if want := []string{"(header Content-Type) changed", "(header Warning) missing", "(header Etag) added"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	next.Status = http.StatusNotFound
	if all := differences(old, next); len(all) != 1 || all[0] != (difference{statusCode, Changed, "200", "404"}) {
		t.Errorf("%+v", all)
	}
}
