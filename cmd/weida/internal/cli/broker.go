//go:build linux || darwin

package cli

import (
	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/brokerd"
	"github.com/weir-agent/weir/cmd/weida/internal/queuecmd"
)

// brokerCommands are the broker's: it keeps its queues in a log that these systems alone have.
func brokerCommands() []*cobra.Command {
	return []*cobra.Command{brokerd.Command(), queuecmd.Command()}
}
