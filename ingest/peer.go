package ingest

import (
	"fmt"
	"net"
	"os"
	"slices"
)

const rootUID = 0

// allowed reports whether a peer may connect: the kernel must tell its user id, and
// the id must be one of uids or, if there are none, this process's own or root's
// ("Socket setup"). What cannot be told is refused.
func allowed(nc *net.UnixConn, uids []uint32) error {
	raw, err := nc.SyscallConn()
	if err != nil {
		return fmt.Errorf("ingest: peer credentials: %w", err)
	}
	var uid uint32
	var credErr error
	if err := raw.Control(func(fd uintptr) { uid, credErr = peerUID(int(fd)) }); err != nil {
		return fmt.Errorf("ingest: peer credentials: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("ingest: peer credentials: %w", credErr)
	}
	if !uidAllowed(uid, uids, uint32(os.Geteuid())) {
		return fmt.Errorf("ingest: user id %d may not connect", uid)
	}
	return nil
}

func uidAllowed(uid uint32, uids []uint32, own uint32) bool {
	if len(uids) == 0 {
		return uid == own || uid == rootUID
	}
	return slices.Contains(uids, uid)
}
