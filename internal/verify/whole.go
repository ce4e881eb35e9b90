package verify

// checkWhole sees that what lies in the log of an append is whole batches of it,
// each in its order and without a gap.
func (c *checker) checkWhole(id AppendID, op *Op) {
	first := c.index(RecordID{id, 0})
	found := c.found[first : first+int32(op.Records)]
	// whole[i]: the records before i that are there can be made of batches.
	whole := make([]bool, len(found)+1)
	whole[0] = true
	for i, at := range found {
		if !whole[i] {
			continue
		}
		if at == NoOffset {
			whole[i+1] = true
			continue
		}
		for t := range op.Tries {
			try := &op.Tries[t]
			if int(try.First) != i || try.Outcome != OK && try.Outcome != Unknown {
				continue
			}
			if end := i + int(try.Records); consecutive(found[i:end]) {
				whole[end] = true
			}
		}
	}
	if whole[len(found)] {
		return
	}
	for place, at := range found {
		if at == NoOffset {
			continue
		}
		f := op.fateOf(uint16(place))
		if !f.may || c.in[first+int32(place)] != op.Partition {
			return // said already
		}
	}
	for place, at := range found {
		if at != NoOffset {
			c.violate(Torn, op.Partition, at, "%s, is here, and what lies there of that append is not what was sent in one batch.",
				c.describe(RecordID{id, uint16(place)}))
			return
		}
	}
}

func consecutive(at []Offset) bool {
	for i, o := range at {
		if o == NoOffset || o != at[0]+Offset(i) {
			return false
		}
	}
	return true
}

// nonsense tells whether a refusal is denied by the end that it tells.
func (o *Op) nonsense(t *Try) bool {
	switch {
	case t.Outcome != Taken && t.Outcome != NotReached:
		return false
	case o.Expected == NoOffset || t.Next == NoOffset:
		return true
	}
	if t.Outcome == Taken {
		return t.Next <= o.expects(t)
	}
	return t.Next >= o.expects(t)
}

// checkEnds sees that nobody was told of an end that the log does not have, or that
// makes no sense.
func (c *checker) checkEnds() {
	for _, ops := range c.Ops {
		for i := range ops {
			op := &ops[i]
			for t := range op.Tries {
				try := &op.Tries[t]
				if try.Next > c.Logs[op.Partition].end() {
					c.violate(BeyondEnd, op.Partition, try.Next, "an end was told that the log, which ends at %d, has not reached: %s.",
						c.Logs[op.Partition].end(), c.told(try))
				}
				if op.nonsense(try) {
					c.violate(Nonsense, op.Partition, op.expects(try), "a writer that expected this offset was told %s.", c.told(try))
				}
			}
		}
	}
	for p, reads := range c.Reads {
		c.report.Counts.Reads += len(reads)
		for _, r := range reads {
			if end := c.Logs[p].end(); r.Offset > end {
				c.violate(BeyondEnd, Partition(p), r.Offset, "the end was read at %v through %s, and the log ends at %d.", r.End, c.Proxies[r.Proxy], end)
			}
		}
	}
}
