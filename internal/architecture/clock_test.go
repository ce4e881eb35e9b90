package architecture

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// otherClocks are the files of the proxy that read Go's clock, and for what: never
// for what a judgement rests on. proxy/clock.go has the clocks for that, which
// run through suspend, and which the proof build has jump.
var otherClocks = map[string]string{
	"proxy/clock.go":         "the wall clock itself",
	"proxy/conn.go":          "deadlines of sockets",
	"proxy/discover.go":      "deadlines of sockets",
	"proxy/send.go":          "deadlines of sockets",
	"proxy/lookup.go":        "deadline of a context",
	"proxy/clientside.go":    "deadlines of sockets",
	"proxy/budget.go":        "how long a request takes to arrive",
	"proxy/drain.go":         "how long a drain took",
	"proxy/health.go":        "since when brokers cannot be reached",
	"proxy/limithits.go":     "how often something is logged",
	"proxy/login.go":         "when a login is renewed; what is late fails and is done again",
	"proxy/prober/prober.go": "when a login is renewed; what is late fails and is done again",
	"proxy/prober/conn.go":   "deadlines of sockets",
	"proxy/prober/config.go": "defaults for tests",
}

// TestJudgementGoesByOneClock keeps readings of Go's clock out of files that are
// not known to need them.
func TestJudgementGoesByOneClock(t *testing.T) {
	for name, tree := range syntax(t) {
		if reads := strings.HasPrefix(name, "proxy/") && readsGoClock(tree); reads && otherClocks[name] == "" {
			t.Errorf("%s reads Go's clock: take instant or wall of proxy/clock.go, or say in otherClocks what for", name)
		} else if !reads && otherClocks[name] != "" {
			t.Errorf("%s is in otherClocks and reads none", name)
		}
	}
}

// readsGoClock reports whether a file names time.Now, Since or Until.
func readsGoClock(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			base, is := s.X.(*ast.Ident)
			found = found || is && base.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, s.Sel.Name)
		}
		return true
	})
	return found
}
