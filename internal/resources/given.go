package resources

import (
	"bytes"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// Given is what the system gives the process. Zero is not known, or no limit.
type Given struct {
	// Descriptors is how many files and sockets may be open (RLIMIT_NOFILE). Go's
	// runtime has raised the soft limit to the hard one when the process began, so
	// this is the hard one, or one less.
	Descriptors uint64
	// Memory is the least limit in bytes that was found, and MemoryFrom where: a file
	// of the control group, the machine, or GOMEMLIMIT.
	Memory     int64
	MemoryFrom string
}

const goMemory = "GOMEMLIMIT"

// Read finds out. It reads a few files under /proc and /sys, where there are any.
func Read() Given {
	given := Given{Descriptors: descriptors()}
	given.Memory, given.MemoryFrom = leastMemory(os.ReadFile, debug.SetMemoryLimit(-1)) // below 0 it only tells
	return given
}

// leastMemory looks for limits of memory by read, which is os.ReadFile or a test's;
// goLimit is that of Go's runtime.
func leastMemory(read func(name string) ([]byte, error), goLimit int64) (bytes int64, from string) {
	take := func(n int64, of string) {
		if n > 0 && (bytes == 0 || n < bytes) {
			bytes, from = n, of
		}
	}
	take(machine(read))
	for _, file := range groupFiles(read) {
		take(groupLimit(read, file), file)
	}
	if goLimit < math.MaxInt64 {
		take(goLimit, goMemory)
	}
	return bytes, from
}

// machine is the memory of the machine.
func machine(read func(name string) ([]byte, error)) (int64, string) {
	const name = "/proc/meminfo"
	text, err := read(name)
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || n > math.MaxInt64>>10 {
				return 0, ""
			}
			return n << 10, "MemTotal in " + name
		}
	}
	return 0, ""
}

// unlimited is from where on a limit of a control group is none: version 1 shows the
// largest number of whole pages.
const unlimited = 1 << 62

// groupLimit reads a limit of a control group; 0: there is none.
func groupLimit(read func(name string) ([]byte, error), file string) int64 {
	text, err := read(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // "max" is no number
	if err != nil || n >= unlimited {
		return 0
	}
	return n
}
