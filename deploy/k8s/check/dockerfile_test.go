package check

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// understand has BuildKit read a Dockerfile as `docker build` does; what its linter says
// is an error too.
func understand(text []byte) error {
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var faults []error
	for _, warning := range parsed.Warnings {
		faults = append(faults, errors.New(warning.Short))
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		faults = append(faults, fmt.Errorf("%s: %s", rule, message))
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err == nil && len(stages) == 0 {
		err = errors.New("no stage")
	}
	return errors.Join(append(faults, err)...)
}

func TestDockerfileIsUnderstood(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if err := understand(text); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ name, text, broken string }{
		{"an unknown instruction", "WORKDIR /src", "WORKDIRECTORY /src"},
		{"a copy to nowhere", "COPY go.mod go.sum ./", "COPY go.mod"},
		{"an unknown flag", "COPY --from=build /src/LICENSE", "COPY --form=build /src/LICENSE"},
		{"a command for a shell", `CMD ["--help"]`, `CMD --help`},
		{"a user without a name", "USER 65532:65532", "USER"},
	} {
		broken := bytes.Replace(text, []byte(c.text), []byte(c.broken), 1)
		if bytes.Equal(broken, text) {
			t.Errorf("%s: %q stands nowhere", c.name, c.text)
		} else if understand(broken) == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
}
