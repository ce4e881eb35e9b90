package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/offsetproxy/offsetproxy/internal/version"
)

type versionCmd struct {
	outputFlag
}

// Run prints the version.
func (c *versionCmd) Run(env *environment) error {
	if c.Output == outputJSON {
		return printJSON(env.stdout, version.Current())
	}
	_, err := fmt.Fprintln(env.stdout, version.Current())
	return err
}

// printJSON writes one indented value.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
