package fence

import "testing"

func (w *modelWorld) run() int {
	for i := range modelRun {
		if w.step(); w.failure != "" {
			return i
		}
	}
	w.settleDown()
	return modelRun
}

// TestModel lets the partition machines of several proxies write to a model
// cluster under random faults and checks every verdict against the log.
//
// With -model.minimise it runs one schedule, and tells what is left of it when all
// is taken away that its failure does not need.
func TestModel(t *testing.T) {
	if *modelMinimise {
		tellMinimised(t)
		return
	}
	s := sweep(t, "any", schedulesOf(10_000, 400))
	s.wants(t, Won, Taken, NotReached, Unknown, BrokerError, Retry, PredecessorRefused)
}

func tellMinimised(t *testing.T) {
	broken, err := parseGuards(*modelWithout)
	if err != nil {
		t.Fatal(err)
	}
	if modelWorlds[*modelKind] == nil {
		t.Fatalf("no world %q", *modelKind)
	}
	if _, failed := record(*modelKind, *modelSeed, broken); !failed {
		t.Logf("%s, seed %d: nothing fails", *modelKind, *modelSeed)
		return
	}
	fails(t, *modelKind, *modelSeed, broken)
}

// TestModelScarce lets brokers refuse batches in so many words while other
// copies of them are open, and lets records be unreadable. Definite as such an
// answer is, it says nothing of the copies.
func TestModelScarce(t *testing.T) {
	s := sweep(t, "scarce", schedulesOf(4000, 300))
	s.wants(t, BrokerError, Failed)
}

// TestModelBypassed lets plain producers write too: records may then end up
// elsewhere than promised, but what clients are told stays true, everything
// ends, and it shows.
func TestModelBypassed(t *testing.T) {
	s := sweep(t, "bypassed", schedulesOf(2000, 200))
	t.Logf("%d records misplaced, %d violations told, %d alarms", s.misplacements, s.violations, s.alarms)
	if s.misplacements == 0 || s.violations == 0 || s.alarms == 0 {
		t.Error("nothing of the bypassing shows")
	}
}
