//go:build older

package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

func (f *franzSubject) newerGroup(_ string, kind groupKind) ([]kgo.Opt, error) {
	if kind == consumerGroup {
		return nil, cannot("it has no option for them")
	}
	return nil, cannot("it has no share consumer")
}

func flushAcks(context.Context, *kgo.Client) error { return nil }
