//go:build !linux

package drain

import "runtime"

// ownThread puts the calling goroutine on a thread of its own for the rest of its life. The thread ends with the goroutine.
func ownThread() { runtime.LockOSThread() }
