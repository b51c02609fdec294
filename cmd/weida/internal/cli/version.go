package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/weida/wire"
)

// release and commit are set by deploy/build.sh; otherwise Go's own notes of the build say what they know.
var release, commit string

// buildInfo says what was built, from what, for what.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // with "+changes" where the tree was not clean
	Wire    uint64 `json:"wire"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func build() buildInfo {
	b := buildInfo{Version: "unknown", Commit: "unknown", Wire: wire.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if release != "" {
		b.Version, b.Commit = release, commit
		return b
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
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
	return b
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print version, commit and protocol", Example: "  weida version"}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := build()
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "weida %s, commit %s, protocol version %d, %s %s/%s\n", b.Version, b.Commit, b.Wire, b.Go, b.OS, b.Arch)
		return err
	}
	return cmd
}
