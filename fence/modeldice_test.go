package fence

import "math/rand/v2"

// dice draws what happens in a world. All that a world draws while it runs goes
// through dice made by its newDice, so that a run can be kept and run again in part.
type dice struct {
	rng  *rand.Rand
	tape *tape // nil: none
}

// newDice makes dice of a world; each stream of a seed has its own numbers.
func (w *modelWorld) newDice(seed, stream uint64) *dice {
	d := &dice{rng: rand.New(rand.NewPCG(seed, stream))}
	w.dice = append(w.dice, d)
	return d
}

// attach has the world draw from the tape, or onto it, from now on.
func (w *modelWorld) attach(t *tape) {
	w.tape = t
	for _, d := range w.dice {
		d.tape = t
	}
}

// IntN is a number below n.
func (d *dice) IntN(n int) int {
	if d.tape == nil {
		return d.rng.IntN(n)
	}
	return int(d.tape.draw(d.rng, int64(n)))
}

// Int64N is a number below n.
func (d *dice) Int64N(n int64) int64 {
	if d.tape == nil {
		return d.rng.Int64N(n)
	}
	return d.tape.draw(d.rng, n)
}

// tape keeps what each step of a run draws.
type tape struct {
	steps [][]int64
	// at is the step that is on, and drawn what it has drawn of it.
	at, drawn int
	// replays: what is drawn comes off the tape. A step that draws more than it has
	// draws zeros, and behind the last step numbers come from rest.
	replays bool
	rest    *rand.Rand
}

func newRecording() *tape { return &tape{at: -1} }

func newReplay(steps [][]int64) *tape {
	return &tape{steps: steps, at: -1, replays: true, rest: rand.New(rand.NewPCG(0, 0))}
}

// next begins a step.
func (t *tape) next() {
	t.at++
	t.drawn = 0
	if !t.replays {
		t.steps = append(t.steps, nil)
	}
}

// mostZeros ends what would draw zeros for ever.
const mostZeros = 1000

func (t *tape) draw(rng *rand.Rand, n int64) int64 {
	if t.at < 0 {
		t.next()
	}
	if !t.replays {
		v := rng.Int64N(n)
		last := len(t.steps) - 1
		t.steps[last] = append(t.steps[last], v)
		return v
	}
	if t.at >= len(t.steps) {
		return t.rest.Int64N(n)
	}
	step := t.steps[t.at]
	i := t.drawn
	switch t.drawn++; {
	case i < len(step):
		return step[i] % n
	case i < len(step)+mostZeros:
		return 0
	}
	return t.rest.Int64N(n)
}
