package ingest

import (
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/weir-agent/weir/internal/unixsocket"
)

const rootUID = 0

// allowed reports whether a peer may connect: the kernel must tell its user id, and
// the id must be one of uids or, if there are none, this process's own or root's
// ("Socket setup"). What cannot be told is refused.
func allowed(nc *net.UnixConn, uids []uint32) error {
	cred, err := unixsocket.Peer(nc)
	if err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	if !uidAllowed(cred.UID, uids, uint32(os.Geteuid())) {
		return fmt.Errorf("ingest: user id %d may not connect", cred.UID)
	}
	return nil
}

func uidAllowed(uid uint32, uids []uint32, own uint32) bool {
	if len(uids) == 0 {
		return uid == own || uid == rootUID
	}
	return slices.Contains(uids, uid)
}
