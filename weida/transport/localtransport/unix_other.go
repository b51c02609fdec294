//go:build !linux && !darwin

package localtransport

import (
	"context"

	"github.com/weir-agent/weir/weida/transport"
)

// ListenUnix fails with ErrNoSockets.
func ListenUnix(string, Config) (transport.Listener, error) { return nil, ErrNoSockets }

// DialUnix fails with ErrNoSockets.
func DialUnix(context.Context, string, Config) (transport.Link, error) { return nil, ErrNoSockets }
