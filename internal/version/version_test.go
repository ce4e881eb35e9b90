package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	vcs := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.3.1"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	tail := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	for _, c := range []struct {
		name   string
		linked string
		build  *debug.BuildInfo
		want   string
	}{
		{"nothing known", "", nil, "offsetproxy devel" + tail},
		{"a plain go build", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "offsetproxy devel" + tail},
		{"go install of a module version", "", vcs, "offsetproxy v0.3.1 (0123456789ab, modified)" + tail},
		{"the linker's number wins", "1.2.3", vcs, "offsetproxy 1.2.3 (0123456789ab, modified)" + tail},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := describe(c.linked, c.build).String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
