package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// pruner takes out of a file what does not fit into a Document, and remembers
// it, so that the rest can be understood and everything be reported at once.
// What stands behind an alias or a merge key is left to the decoder.
type pruner struct {
	problems []Problem
	// spoiled are the settings that a problem is about, by their paths: they are not
	// missing too.
	spoiled map[string]bool
}

var (
	valueType  = reflect.TypeFor[Value]()
	valuesType = reflect.TypeFor[Values]()
	portsType  = reflect.TypeFor[Ports]()
)

// fits reports whether a node fits into a field, after taking out of it what
// does not.
func (p *pruner) fits(n ast.Node, field reflect.Type, path string) bool {
	switch inner := n.(type) {
	case *ast.AnchorNode:
		return p.fits(inner.Value, field, path)
	case *ast.TagNode:
		if _, null := inner.Value.(*ast.NullNode); null || inner.Value == nil {
			return p.wrong(n, path, "a tag stands here without a value")
		}
		return p.fits(inner.Value, field, path)
	case nil, *ast.NullNode, *ast.AliasNode:
		return true
	}
	switch {
	case field == valueType:
		return p.scalar(n, path)
	case field == valuesType:
		if list, ok := n.(*ast.SequenceNode); ok {
			p.list(list, valueType, path)
			return true
		}
		return p.scalar(n, path)
	case field == portsType:
		if n.Type() == ast.MappingType {
			return p.keys(n, map[string]reflect.Type{"first": valueType, "last": valueType}, path)
		}
		return p.scalar(n, path)
	case field.Kind() == reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return p.wrong(n, path, "a list belongs here")
		}
		p.list(list, field.Elem(), path)
		return true
	case field.Kind() == reflect.Map:
		if n.Type() != ast.MappingType {
			return p.wrong(n, path, "keys with values belong here")
		}
		return true
	}
	return p.keys(n, keysOf(field), path)
}

// list takes out the items that do not fit.
func (p *pruner) list(list *ast.SequenceNode, item reflect.Type, path string) {
	i := -1
	list.Values = slices.DeleteFunc(list.Values, func(n ast.Node) bool {
		i++
		return !p.fits(n, item, fmt.Sprintf("%s[%d]", path, i))
	})
}

// keys takes out the keys that are not known and those whose value does not fit.
func (p *pruner) keys(n ast.Node, known map[string]reflect.Type, path string) bool {
	mapping, ok := n.(*ast.MappingNode)
	if !ok {
		return p.wrong(n, path, "keys with values belong here")
	}
	mapping.Values = slices.DeleteFunc(mapping.Values, func(pair *ast.MappingValueNode) bool {
		key := pair.Key.GetToken().Value
		if _, merge := pair.Key.(*ast.MergeKeyNode); merge {
			return false
		}
		field, is := known[key]
		if !is {
			meant := nearest(key, known)
			if meant != "" {
				p.spoil(below(path, meant))
			}
			return !p.wrong(pair.Key, "", unknownKey(key, meant))
		}
		at := below(path, key)
		return !p.fits(pair.Value, field, at)
	})
	return true
}

func (p *pruner) scalar(n ast.Node, path string) bool {
	if new(Value).UnmarshalYAML(n) != nil {
		if _, list := n.(*ast.SequenceNode); list && strings.HasSuffix(path, ".topics") {
			return p.wrong(n, path, "takes one name or pattern: write a rule for each, or topics_regexp: 'a|b'")
		}
		return p.wrong(n, path, "a single value belongs here")
	}
	return true
}

// wrong is false.
func (p *pruner) wrong(n ast.Node, path, message string) bool {
	p.problems = append(p.problems, problemAt(n.GetToken(), path, message))
	if path != "" {
		p.spoil(path)
	}
	return false
}

func (p *pruner) spoil(path string) {
	if p.spoiled == nil {
		p.spoiled = map[string]bool{}
	}
	p.spoiled[path] = true
}

// below is the path of a key.
func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// nearest is the key that may be meant; empty: none is near.
func nearest(key string, known map[string]reflect.Type) string {
	if len(key) > 64 {
		return ""
	}
	best, least := "", 1+max(1, len(key)/4)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d := distance(key, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is how many characters are missing, too many or others (Levenshtein's).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// unknownKey says of a key that it is not known, and of some why; meant may be empty.
func unknownKey(key, meant string) string {
	switch {
	case later[key]:
		return fmt.Sprintf("%q is not in this version", key)
	case key == "unsafe":
		return "unsafe is only a flag of serve and demo, so that no file switches the fence off by itself"
	}
	if meant != "" {
		return fmt.Sprintf("unknown key %q: did you mean %s?", key, meant)
	}
	return fmt.Sprintf("unknown key %q", key)
}

// keysOf lists the keys of a struct with their fields' types.
func keysOf(of reflect.Type) map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	for i := range of.NumField() {
		f := of.Field(i)
		keys[cmp.Or(f.Tag.Get("yaml"), f.Name)] = f.Type
	}
	return keys
}
