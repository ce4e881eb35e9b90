package proxy

import (
	"net"
	"net/netip"
	"sync"
)

// machineBits is how much of an IPv6 address names a network, all of whose addresses
// one machine can have.
const machineBits = 64

// addressCounts counts connections by client address, if they are limited. Its methods
// may be called concurrently.
type addressCounts struct {
	most int // 0: no limit

	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newAddressCounts(most int) *addressCounts {
	return &addressCounts{most: most, open: map[netip.Prefix]int{}}
}

// enter counts a connection in, unless its address has as many as it may: then free is
// false. What it returns is for leave; the zero value, of what is not counted, too.
func (a *addressCounts) enter(address net.Addr) (of netip.Prefix, free bool) {
	of = machine(address)
	if a.most == 0 || !of.IsValid() {
		return netip.Prefix{}, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[of] >= a.most {
		return netip.Prefix{}, false
	}
	a.open[of]++
	return of, true
}

// leave counts a connection out.
func (a *addressCounts) leave(of netip.Prefix) {
	if !of.IsValid() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[of]--; a.open[of] == 0 {
		delete(a.open, of)
	}
}

// machine gives what is counted together; not valid: the address is none of TCP.
func machine(address net.Addr) netip.Prefix {
	ip, ok := ipOf(address)
	if !ok {
		return netip.Prefix{}
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = machineBits
	}
	of, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // it is of no family
	}
	return of
}
