//go:build proof

package fence

// TakeAway takes away the guard that docs/semantics.md lists by this name, and
// reports whether there is one. It exists in the proof build only, which shows
// that something goes wrong without the guard.
func (c *Config) TakeAway(name string) bool {
	g := guardNamed(name)
	c.broken |= g
	return g != 0
}
