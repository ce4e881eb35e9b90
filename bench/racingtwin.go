package main

import (
	"context"
	"errors"
)

// errNoTwin means that a target has no second proxy.
var errNoTwin = errors.New("no second proxy is known")

// twinOf is a second proxy with the rules of the target's own, for writers that do
// not all come through one. It is started when it is first asked for, and ends
// with what started the target's.
func (t *target) twinOf(ctx context.Context) (*target, error) {
	if t.twin == nil && t.startTwin != nil {
		twin, err := t.startTwin(ctx)
		if err != nil {
			return nil, err
		}
		t.twin = twin
	}
	if t.twin == nil {
		return nil, errNoTwin
	}
	return t.twin, nil
}
