package daemon

import (
	"runtime"
	"runtime/debug"
)

// BuildInfo says what was built, from what, for what.
type BuildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // with "+changes" where the tree was not clean
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Of a release these are set by the linker (-X) and never changed; a build without them says what the toolchain knows of the tree.
var release, commit string

// Version is the version that was built in.
func Version() string { return Build().Version }

// Build returns what was built in.
func Build() BuildInfo {
	b := BuildInfo{Version: "unknown", Commit: "unknown", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		b.Version = info.Main.Version
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					b.Commit += "+changes"
				}
			}
		}
	}
	if release != "" {
		b.Version, b.Commit = release, commit
	}
	return b
}
