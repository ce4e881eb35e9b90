package resources

import (
	"errors"
	"io/fs"
	"math"
	"runtime"
	"testing"
)

// files is what a system shows, by name.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	if text, ok := f[name]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.ErrUnsupported}
}

func TestLeastMemory(t *testing.T) {
	const (
		meminfo = "MemTotal:        2048000 kB\nMemFree:          100 kB\n"
		v1None  = "9223372036854771712\n"
		total   = 2048000 << 10
	)
	for _, test := range []struct {
		name    string
		files   files
		goLimit int64
		want    int64
		from    string
	}{
		{"nothing is known", nil, math.MaxInt64, 0, ""},
		{"the machine", files{"/proc/meminfo": meminfo}, math.MaxInt64, total, "MemTotal in /proc/meminfo"},
		{"version 2, in a container", files{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"},
			math.MaxInt64, 512 << 20, "/sys/fs/cgroup/memory.max"},
		{"version 2, none", files{"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n"},
			math.MaxInt64, total, "MemTotal in /proc/meminfo"},
		{"version 2, one around it", files{"/proc/self/cgroup": "0::/system.slice/proxy.service\n",
			"/sys/fs/cgroup/system.slice/proxy.service/memory.max": "max\n", "/sys/fs/cgroup/system.slice/memory.max": "1073741824\n"},
			math.MaxInt64, 1 << 30, "/sys/fs/cgroup/system.slice/memory.max"},
		{"version 2, outside of its namespace", files{"/proc/self/cgroup": "0::/../../kubepods\n", "/sys/fs/cgroup/memory.max": "1048576\n"},
			math.MaxInt64, 1 << 20, "/sys/fs/cgroup/memory.max"},
		{"version 1", files{"/proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/b\n0::/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": v1None,
			"/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": "268435456\n"}, math.MaxInt64, 256 << 20, "/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes"},
		{"version 1, in a container", files{"/proc/self/cgroup": "4:cpuset,memory:/docker/b\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"},
			math.MaxInt64, 256 << 20, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		{"version 1, none", files{"/proc/self/cgroup": "4:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": v1None}, math.MaxInt64, 0, ""},
		{"GOMEMLIMIT", files{"/proc/meminfo": meminfo}, 1 << 20, 1 << 20, "GOMEMLIMIT"},
		{"GOMEMLIMIT above", files{"/proc/meminfo": meminfo}, total + 1, total, "MemTotal in /proc/meminfo"},
		{"what is not understood", files{"/proc/meminfo": "MemTotal: 99999999999999999999 kB\n", "/proc/self/cgroup": "x\n0::\n::\n4:memory",
			"/sys/fs/cgroup/memory.max": "-5\n"}, math.MaxInt64, 0, ""},
	} {
		got, from := leastMemory(test.files.read, test.goLimit)
		if got != test.want || from != test.from {
			t.Errorf("%s: got %d from %q, want %d from %q", test.name, got, from, test.want, test.from)
		}
	}
}

func TestRead(t *testing.T) {
	given := Read()
	if runtime.GOOS == "linux" && (given.Descriptors == 0 || given.Memory == 0 || given.MemoryFrom == "") {
		t.Errorf("got %+v: something is not known", given)
	}
}
