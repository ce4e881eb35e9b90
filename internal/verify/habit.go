package verify

import (
	"fmt"
	"slices"
	"strings"
)

// Habit is how a writer goes about an append.
type Habit uint8

// The habits. All but End expect an offset.
const (
	// Once: it is sent once.
	Once Habit = iota
	// Insisting: it has an append-id, and is sent again until its fate is known.
	Insisting
	// Moving: as Insisting, each time through the next proxy.
	Moving
	// Restamping: as Insisting, each time with new timestamps.
	Restamping
	// Rebuilding: as Insisting, each time cut into other batches.
	Rebuilding
	// Duplicating: as Insisting, at first twice at once on two connections.
	Duplicating
	// Idempotent: it has a producer id and a sequence, and is sent again through
	// the same proxy.
	Idempotent
	// End: it expects no offset but the log's end, and is sent once.
	End
	habits
)

var habitNames = []string{"once", "insisting", "moving", "restamping", "rebuilding", "duplicating", "idempotent", "end"}

// String gives the name that the history has.
func (h Habit) String() string { return habitNames[h] }

// identified tells whether its records have append-ids.
func (h Habit) identified() bool { return h != Once && h != Idempotent && h != End }

// repeats tells whether it is sent again until its fate is known.
func (h Habit) repeats() bool { return h != Once && h != End }

// AllHabits lists every habit.
func AllHabits() []Habit {
	all := make([]Habit, habits)
	for i := range all {
		all[i] = Habit(i)
	}
	return all
}

// ParseHabit understands a habit's name.
func ParseHabit(name string) (Habit, error) {
	i := slices.Index(habitNames, name)
	if i < 0 {
		return 0, fmt.Errorf("there is no habit %q; there are %s", name, strings.Join(habitNames, ", "))
	}
	return Habit(i), nil
}
