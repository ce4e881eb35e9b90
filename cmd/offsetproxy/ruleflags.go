package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
)

// resolveAll understands the flags when there is no file.
func (c *serveCmd) resolveAll(parsed *kong.Context) (*config.Settings, error) {
	d := c.document(c.logFlags)
	var err error
	if d.Rules, err = c.rules(parsed); err != nil {
		return nil, err
	}
	return resolveFlags(d)
}

// rules gives the rules in the order in which they were given, whatever their
// flags: the first that matches decides.
func (f *settingFlags) rules(parsed *kong.Context) ([]config.Rule, error) {
	left := map[string][]string{"require": f.Require, "enforce": f.Enforce, "observe": f.Observe, "off": f.Off}
	var rules []config.Rule
	for _, p := range parsed.Path {
		if p.Flag == nil || len(left[p.Flag.Name]) == 0 {
			continue
		}
		mode := p.Flag.Name // the flags are named after the modes
		line := left[mode][0]
		left[mode] = left[mode][1:]
		rule, err := config.ParseRule(mode, line)
		if err != nil {
			return nil, usage("--%s %q: %v", mode, line, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// ruleFlagName is flagName for the settings of a rule too, as in
// "--enforce: replay"; topics go without saying.
func ruleFlagName(d *config.Document, path string) string {
	var i int
	var key string
	if n, _ := fmt.Sscanf(path, "rules[%d].%s", &i, &key); n != 2 || i >= len(d.Rules) {
		return flagName(path)
	}
	name := "--" + d.Rules[i].Mode.String()
	if strings.HasPrefix(key, "topics") {
		return name
	}
	return name + ": " + key
}
