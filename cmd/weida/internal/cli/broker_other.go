//go:build !linux && !darwin

package cli

import "github.com/spf13/cobra"

// brokerCommands are none: the log of the queues is for other systems.
func brokerCommands() []*cobra.Command { return nil }
