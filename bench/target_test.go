package main

import (
	"errors"
	"reflect"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]target{
		"direct=k:9092":            {name: "direct", address: "k:9092"},
		"p=[::1]:1,pid=7,pid=8":    {name: "p", address: "[::1]:1", pids: []pid{7, 8}},
		"r=h:2,conditional,pid=12": {name: "r", address: "h:2", conditional: true, pids: []pid{12}},
		"a peer=10.0.0.1:9,pid=1":  {name: "a peer", address: "10.0.0.1:9", pids: []pid{1}},
		"x=h:1,admin=h:2,pid=3":    {name: "x", address: "h:1", admin: "h:2", pids: []pid{3}},
	} {
		got, err := parseTarget(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "k:9092", "=k:1", "a=", "a=k", "a=k:", "a=k:1,pid=0", "a=k:1,pid=x", "a=k:1,fenced", "a=k:1,", "a=k:1,admin=h"} {
		if _, err := parseTarget(text); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v, want a usage error", text, err)
		}
	}
}

func TestParseProgram(t *testing.T) {
	for text, want := range map[string]program{
		"bin/offsetproxy": {path: "bin/offsetproxy"},
		"before=/a/b":     {"before-", "/a/b"},
	} {
		if got := parseProgram(text); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

// Targets do not share topics, and only one that fences has a fenced one.
func TestTopicsOfTargets(t *testing.T) {
	r := &run{prefix: "b"}
	for want, of := range map[string]*target{
		"b-one-off":            {name: "off"},
		"b-fenced-one-require": {name: "require", conditional: true},
		"b-one-a_peer":         {name: "a peer"},
	} {
		if got := r.topicFor("one", of); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestChosenMeasures(t *testing.T) {
	names := func(ms []measure) (out []string) {
		for _, m := range ms {
			out = append(out, m.name)
		}
		return out
	}
	for _, c := range []struct {
		patterns []string
		want     []string
	}{
		{nil, names(measures)},
		{[]string{"bulk"}, []string{"bulk1k", "bulk64k"}},
		{[]string{"sixteen", "openl"}, []string{"sixteen", "openloop"}},
		{[]string{"bulk*4k"}, []string{"bulk64k"}},
	} {
		got, err := chosen(c.patterns)
		if err != nil || !reflect.DeepEqual(names(got), c.want) {
			t.Errorf("%q: got %q, %v, want %q", c.patterns, names(got), err, c.want)
		}
	}
	for _, patterns := range [][]string{{"none-such"}, {"one", "none-such"}, {"[", "one"}} {
		if _, err := chosen(patterns); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v, want a usage error", patterns, err)
		}
	}
}
