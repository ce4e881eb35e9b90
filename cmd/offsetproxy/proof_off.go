//go:build !proof

package main

import "log/slog"

// proofFlags are what the proof build adds to serve (proof_on.go): nothing here.
type proofFlags struct{}

func (*proofFlags) prove(*slog.Logger) error { return nil }
