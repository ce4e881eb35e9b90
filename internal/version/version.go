package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// number is set by the linker in release builds.
var number string

// Info describes one build. Fields that are not known are empty.
type Info struct {
	// Number is the release number, a module version, or "devel".
	Number string `json:"version"`
	// Revision is the source revision the build was made from.
	Revision string `json:"revision,omitempty"`
	// Time is the revision's commit time, RFC 3339.
	Time string `json:"time,omitempty"`
	// Modified tells that the source differed from Revision.
	Modified bool `json:"modified,omitempty"`
	// Go is the tool chain's version.
	Go string `json:"go"`
	// Platform is the operating system and architecture, as in "linux/amd64".
	Platform string `json:"platform"`
}

// Current describes the running program. Safe for concurrent use.
func Current() Info {
	build, _ := debug.ReadBuildInfo()
	return describe(number, build)
}

// describe merges the linker's number with the tool chain's record, which is
// nil in a program built without module support.
func describe(linked string, build *debug.BuildInfo) Info {
	info := Info{
		Number:   linked,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build != nil {
		if info.Number == "" && build.Main.Version != "(devel)" {
			info.Number = build.Main.Version
		}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Revision = s.Value
			case "vcs.time":
				info.Time = s.Value
			case "vcs.modified":
				info.Modified = s.Value == "true"
			}
		}
	}
	if info.Number == "" {
		info.Number = "devel"
	}
	return info
}

// String is one line for a person.
func (i Info) String() string {
	s := "offsetproxy " + i.Number
	if i.Revision != "" {
		rev := i.Revision
		if len(rev) > 12 {
			rev = rev[:12]
		}
		if i.Modified {
			rev += ", modified"
		}
		s += fmt.Sprintf(" (%s)", rev)
	}
	return fmt.Sprintf("%s %s %s", s, i.Go, i.Platform)
}
