package resources

import (
	"fmt"
	"strings"
)

// Shortages says, for a person, what is given less than the settings allow clients to
// have used, what then happens and what to change; nil: nothing is. It is pure.
func Shortages(given Given, needs Needs) []string {
	var all []string
	if given.Descriptors > 0 && given.Descriptors < needs.Descriptors {
		all = append(all, fewDescriptors(given, needs))
	}
	if given.Memory > 0 && given.Memory < needs.Memory() {
		all = append(all, littleMemory(given, needs))
	}
	return all
}

func fewDescriptors(given Given, needs Needs) string {
	lower := ""
	if given.Descriptors > otherDescriptors+perConnection {
		lower = fmt.Sprintf(", or lower limits.max_connections to %d", (given.Descriptors-otherDescriptors)/perConnection)
	}
	return fmt.Sprintf("the process may open %d files and sockets, and limits.max_connections %d needs %d, since each client takes two: "+
		"clients beyond that would not be accepted. Raise the hard limit (ulimit -Hn, LimitNOFILE=)%s",
		given.Descriptors, needs.Connections, needs.Descriptors, lower)
}

// leastBuffered is below which limits.max_buffered is not worth advising, in bytes.
const leastBuffered = 16 << 20

func littleMemory(given Given, needs Needs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "memory is limited to %s (%s), and the settings allow %s: limits.max_buffered %s, %d idle connections %s, what is remembered of partitions and producers %s. ",
		megabytes(given.Memory), given.MemoryFrom, megabytes(needs.Memory()), megabytes(needs.Buffered), needs.Connections, megabytes(needs.Idle), megabytes(needs.Remembered))
	if given.MemoryFrom == goMemory {
		b.WriteString("Beyond the limit the process would do little else than collect garbage. ")
	} else {
		b.WriteString("Beyond the limit the process would be killed. ")
	}
	if room := given.Memory/10*9 - (needs.Memory() - needs.Buffered); room >= leastBuffered {
		fmt.Fprintf(&b, "Lower limits.max_buffered to %s, or raise the limit", megabytes(room))
	} else {
		b.WriteString("Raise the limit, or lower limits.max_connections, idle_views and idle_producers with max_buffered")
	}
	if given.MemoryFrom != goMemory {
		fmt.Fprintf(&b, "; and set %s to about %s, so that garbage is collected in time", goMemory, megabytes(given.Memory/10*9))
	}
	return b.String()
}

// megabytes writes a number of bytes as configuration files have it, rounded down.
func megabytes(n int64) string { return fmt.Sprintf("%dMiB", n>>20) }
