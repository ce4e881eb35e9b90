package localusers

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// mostFile bounds a users file, in bytes.
	mostFile = 4 << 20
	// mostUsers bounds the users of a file.
	mostUsers = 10_000
	// mostPasswords bounds those among them of whom it has the password: a verifier
	// of each is computed when the file is read, which takes some milliseconds.
	mostPasswords = 1_000
	// mostName bounds a user's name, in bytes.
	mostName = 255
	// everybodyElse is the name of the entry with the key of those who do not exist.
	everybodyElse = "*"
	// leastKey is how long that has to be at least, in bytes.
	leastKey = 16
)

// entry is one user of a file: a password or verifiers; or the key of everybodyElse.
type entry struct {
	name      string
	key       []byte
	password  string
	verifiers map[Mechanism]Verifier
}

// wrongLine says what is wrong with a file. It holds nothing of the file but names.
type wrongLine struct {
	line   int // 0: not known
	reason string
}

func (w *wrongLine) Error() string {
	if w.line == 0 {
		return w.reason
	}
	return fmt.Sprintf("line %d: %s", w.line, w.reason)
}

func wrong(n ast.Node, format string, args ...any) error {
	return &wrongLine{line: lineOf(n), reason: fmt.Sprintf(format, args...)}
}

// lineOf is where a node stands; 0: not known.
func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

const form = "a users file has, by user name, password, or verifiers under SCRAM-SHA-256 and SCRAM-SHA-512 as `offsetproxy user` writes them"

// parse reads a file. The parser's own messages show the file, so they are not used.
func parse(src []byte) ([]entry, error) {
	file, err := parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		w := &wrongLine{reason: "is not YAML: " + form}
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			w.line = at.GetToken().Position.Line
		}
		return nil, w
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, wrong(d.Body, "several documents (---) in one file")
		}
		body = d.Body
	}
	if body == nil {
		return nil, nil // nobody may log in
	}
	pairs, err := mapping(body, true, form)
	if err != nil {
		return nil, err
	}
	if len(pairs) > mostUsers {
		return nil, wrong(body, "%d users; at most %d", len(pairs), mostUsers)
	}
	var entries []entry
	passwords := 0
	for _, p := range pairs {
		e, err := parseUser(p)
		if err != nil {
			return nil, err
		}
		if e.password != "" {
			if passwords++; passwords > mostPasswords {
				return nil, wrong(p.Key, "more than %d users with a password: make verifiers of them with `offsetproxy user`", mostPasswords)
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// mapping gives the keys of a node, of which each may be there once, and their values.
// users has it name them as users: other keys may be a secret at the wrong place.
func mapping(n ast.Node, users bool, otherwise string) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		seen := make(map[string]ast.Node, len(n.Values))
		for _, p := range n.Values {
			key, ok := text(p.Key)
			if !ok {
				continue
			}
			if before := seen[key]; before != nil {
				what := "this key"
				if users {
					what = fmt.Sprintf("user %q", key)
				}
				return nil, wrong(p.Key, "%s is here already, at line %d: remove one of them", what, lineOf(before))
			}
			seen[key] = p.Key
		}
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	}
	return nil, wrong(n, "%s", otherwise)
}

// text gives a single value as it is written.
func text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func parseUser(p *ast.MappingValueNode) (entry, error) {
	name, ok := text(p.Key)
	if !ok || name == "" || len(name) > mostName || strings.ContainsRune(name, 0) {
		return entry{}, wrong(p.Key, "a user has no name, or one that is longer than %d bytes", mostName)
	}
	e := entry{name: name, verifiers: map[Mechanism]Verifier{}}
	keys, err := mapping(p.Value, false, fmt.Sprintf("user %q has neither password nor verifiers: %s", name, form))
	if err != nil {
		return entry{}, err
	}
	for _, k := range keys {
		key, _ := text(k.Key)
		switch m := Mechanism(key); {
		case key == "key" && name == everybodyElse && len(keys) == 1:
			value, _ := text(k.Value)
			if e.key, err = base64.StdEncoding.DecodeString(value); err != nil || len(e.key) < leastKey {
				return entry{}, wrong(k.Key, "the key of %q is not base64 of %d random bytes or more", name, leastKey)
			}
			return e, nil
		case key == "password":
			if e.password, ok = text(k.Value); !ok || e.password == "" || strings.ContainsRune(e.password, 0) {
				return entry{}, wrong(k.Key, "the password of user %q is not a text, or empty", name)
			}
		case m.hash() != nil:
			v, err := parseVerifier(m, name, k.Value)
			if err != nil {
				return entry{}, err
			}
			e.verifiers[m] = v
		default:
			return entry{}, wrong(k.Key, "user %q has a key that is not known: %s", name, form)
		}
	}
	switch {
	case e.password != "" && len(e.verifiers) > 0:
		return entry{}, wrong(p.Key, "user %q has a password and verifiers; one of both", name)
	case e.password == "" && len(e.verifiers) == 0:
		return entry{}, wrong(p.Key, "user %q has neither password nor verifiers: %s", name, form)
	}
	return e, nil
}

func parseVerifier(m Mechanism, name string, n ast.Node) (Verifier, error) {
	otherwise := fmt.Sprintf("%s of user %q has not salt, stored_key, server_key and iterations", m, name)
	keys, err := mapping(n, false, otherwise)
	if err != nil {
		return Verifier{}, err
	}
	var v Verifier
	for _, k := range keys {
		key, _ := text(k.Key)
		value, ok := text(k.Value)
		if !ok {
			return Verifier{}, wrong(k.Key, "%s", otherwise)
		}
		size := m.hash()().Size()
		switch key {
		case "salt":
			v.Salt, err = base64.StdEncoding.DecodeString(value)
			ok = err == nil && len(v.Salt) > 0 && len(v.Salt) <= mostSalt
		case "stored_key":
			v.StoredKey, err = base64.StdEncoding.DecodeString(value)
			ok = err == nil && len(v.StoredKey) == size
		case "server_key":
			v.ServerKey, err = base64.StdEncoding.DecodeString(value)
			ok = err == nil && len(v.ServerKey) == size
		case "iterations":
			v.Iterations, ok = parseIterations(value)
		default:
			return Verifier{}, wrong(k.Key, "%s of user %q has a key that is not known", m, name)
		}
		if !ok {
			return Verifier{}, wrong(k.Key, "%s of %s of user %q: keys are base64, %d bytes long, and iterations are %d to %d", key, m, name, size, LeastIterations, MostIterations)
		}
	}
	if v.Salt == nil || v.StoredKey == nil || v.ServerKey == nil || v.Iterations == 0 {
		return Verifier{}, wrong(n, "%s", otherwise)
	}
	return v, nil
}

func parseIterations(s string) (int, bool) {
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' || n > MostIterations {
			return 0, false
		}
		n = n*10 + int(r-'0')
	}
	return n, n >= LeastIterations && n <= MostIterations
}

// Entry writes a user of a file, with verifiers alone.
func Entry(name string, verifiers map[Mechanism]Verifier) (string, error) {
	if name == "" || len(name) > mostName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", fmt.Errorf("%w: a user's name has 1 to %d bytes that can be printed", ErrFile, mostName)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", quoted(name))
	for _, m := range []Mechanism{ScramSHA256, ScramSHA512} {
		if v, ok := verifiers[m]; ok {
			encode := base64.StdEncoding.EncodeToString
			fmt.Fprintf(&b, "  %s:\n    salt: %s\n    stored_key: %s\n    server_key: %s\n    iterations: %d\n", m, encode(v.Salt), encode(v.StoredKey), encode(v.ServerKey), v.Iterations)
		}
	}
	return b.String(), nil
}

// quoted writes a name so that YAML reads it back as it is.
func quoted(name string) string {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '-' && name[0] != '-') {
			return "'" + strings.ReplaceAll(name, "'", "''") + "'"
		}
	}
	switch strings.ToLower(name) {
	case "null", "true", "false", "yes", "no", "on", "off", "nan", "y", "n":
		return "'" + name + "'"
	}
	return name
}
