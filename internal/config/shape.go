package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// pruner takes out of a file what does not fit into a Document, and remembers
// it, so that the rest can be understood and everything be reported at once.
// What stands behind an alias or a merge key is left to the decoder.
type pruner struct{ problems []Problem }

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
			return !p.wrong(pair.Key, "", unknownKey(key))
		}
		at := key
		if path != "" {
			at = path + "." + key
		}
		return !p.fits(pair.Value, field, at)
	})
	return true
}

func (p *pruner) scalar(n ast.Node, path string) bool {
	if new(Value).UnmarshalYAML(n) != nil {
		return p.wrong(n, path, "a single value belongs here")
	}
	return true
}

// wrong is false.
func (p *pruner) wrong(n ast.Node, path, message string) bool {
	p.problems = append(p.problems, problemAt(n.GetToken(), path, message))
	return false
}

// unknownKey says of a key that it is not known, and of some why.
func unknownKey(key string) string {
	switch {
	case later[key]:
		return fmt.Sprintf("%q is not in this version", key)
	case key == "unsafe":
		return "unsafe is only a flag of serve and demo, so that no file switches the fence off by itself"
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
