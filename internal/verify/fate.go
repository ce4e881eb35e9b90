package verify

// fate is what an append's writer knows of one of its records at last.
type fate struct {
	outcome Outcome
	// offset is where it was acknowledged, if OK.
	offset Offset
	// next is what the strictest refusal told: no record below it is or ever
	// will be in the log. Only if Taken.
	next Offset
	// by is the try that decided, nil if none was made.
	by *Try
	// from is when it was sent first by a try that may have appended it, and until
	// when it was acknowledged first.
	from, until Moment
	// may tells that a try may have appended it.
	may bool
}

// fateOf gives the fate of one record of an append by all its tries:
//
//   - A success is a success, whatever other copies of it were told.
//   - Taken settles what was unknown, earlier and later: the proxy has compared
//     the record with those in the log, so that no copy can be there below next,
//     nor come there.
//   - What is unknown stays so whatever else is said: "not reached" and other
//     refusals speak of their own transmission only.
//   - What was refused in all its transmissions is not in the log.
func (o *Op) fateOf(place uint16) fate {
	f := fate{outcome: NotSent, offset: NoOffset, next: NoOffset, from: Never, until: Never}
	for i := range o.Tries {
		t := &o.Tries[i]
		if !t.holds(place) {
			continue
		}
		switch t.Outcome {
		case OK:
			f.may, f.from, f.until = true, min(f.from, t.Start), min(f.until, t.End)
			// Of several successes the first at another offset than expected counts.
			right := o.Expected + Offset(place)
			at := t.Offset + Offset(place-t.First)
			if f.outcome != OK || o.Expected != NoOffset && f.offset == right && at != right {
				f.outcome, f.offset, f.by = OK, at, t
			}
		case Unknown:
			f.may, f.from = true, min(f.from, t.Start)
			if f.outcome != OK && f.next == NoOffset {
				f.outcome, f.by = Unknown, t
			}
		case Taken:
			if o.Expected+Offset(place) < t.Next {
				if f.next == NoOffset && f.outcome != OK {
					f.outcome, f.by = Taken, t
				}
				f.next = max(f.next, t.Next)
			} else if f.weaker() {
				f.outcome, f.by = Taken, t
			}
		case NotReached, Refused:
			if f.weaker() {
				f.outcome, f.by = t.Outcome, t
			}
		}
	}
	return f
}

// weaker tells whether a refusal that speaks of its own transmission only has
// something to say. Only for what is not decided.
func (f *fate) weaker() bool {
	return f.outcome != OK && f.outcome != Unknown && f.next == NoOffset
}

// outcome is the outcome of the whole append: unknown if any of its records is,
// else that of the first.
func (o *Op) outcome() Outcome {
	first := NotSent
	for place := range o.Records {
		f := o.fateOf(place)
		if f.outcome == Unknown {
			return Unknown
		}
		if place == 0 {
			first = f.outcome
		}
	}
	return first
}
