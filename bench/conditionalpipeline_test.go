package main

import (
	"testing"
	"time"
)

func TestPipelineKeepsSoManyInFlight(t *testing.T) {
	c := unfenced(t)
	s := entrantAt(c, conditional)
	s.shape.records = 10
	for _, depth := range []int{1, 5} {
		did, err := pipeline{entrant: s, on: []int32{0}, depth: depth}.run(t.Context(), 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if did.records < 10*depth || did.records%10 != 0 || did.took < 50*time.Millisecond || did.perSecond() <= 0 {
			t.Errorf("%d in flight: got %+v", depth, did)
		}
	}
}

func TestPipelineEndsAtARefusal(t *testing.T) {
	c := unfenced(t)
	scripted(c, refuses(1, "expected-offset taken: expected=0 next=7"))
	if did, err := (pipeline{entrant: entrantAt(c, conditional), on: []int32{0}, depth: 5}).run(t.Context(), time.Minute); err == nil {
		t.Errorf("got %+v, want an error", did)
	}
}
