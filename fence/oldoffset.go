package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// ReadsOld reports whether a batch that is admitted now costs a reading of
// records which will not be remembered: it expects an offset far behind the end,
// or what lies there is gone. Whoever asks for many such offsets has each read
// from the log, so the caller may put the batch off.
func (p *Partition) ReadsOld(now ps.Now, b *Batch) bool {
	if b.AtEnd || p.cfg.Unsafe {
		return false
	}
	end, ok := p.state.CommittedEnd(now.Instant, p.cfg.ViewMaxAge)
	if !ok || b.Expected >= end || !p.state.Old(b.Expected) || p.state.FindUnsettled(b.Expected, b.Records) != nil {
		return false
	}
	_, known := p.state.Known(b.Expected, min(b.end(), end))
	return !known
}
