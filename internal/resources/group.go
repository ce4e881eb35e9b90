package resources

import (
	"path"
	"slices"
	"strings"
)

// groupFiles are where limits of memory of the process's control group may stand, and of
// those around it, which count too: of version 2 (one hierarchy), and of version 1 (one
// for memory). Within a container the path that the process is told may be one of the
// machine's and not there; the limit then stands at the root.
func groupFiles(read func(name string) ([]byte, error)) []string {
	text, err := read("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var files []string
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		root, name := "", ""
		switch {
		case fields[0] == "0" && fields[1] == "":
			root, name = "/sys/fs/cgroup", "memory.max"
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			files = append(files, path.Join(root, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}
