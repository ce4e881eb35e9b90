package config

import (
	"errors"
	"os"
	"testing"
)

// Whatever a file holds, Parse gives settings or an Error with a problem.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../deploy/offsetproxy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte("bootstrap: [a:1, null]\nbroker_ports: {first: &x 1, last: *x}\n"))
	f.Add([]byte("rules:\n- <<: {mode: off}\n  topics: |\n    a\n"))
	f.Add([]byte("node_ports: {-1: 1, 99999999999: 2}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 4096 {
			return
		}
		settings, err := Parse("f", src)
		var wrong *Error
		switch {
		case err == nil && len(settings.Proxy.Bootstrap) == 0:
			t.Error("accepted without brokers")
		case err != nil && (!errors.As(err, &wrong) || len(wrong.Problems) == 0 || wrong.Error() == ""):
			t.Errorf("got error %v, want *Error with problems", err)
		}
	})
}
