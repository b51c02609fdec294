package wab

import "sync"

// hotBytes is how much of the newest segment a shard keeps in memory for its readers, at most; never more than a segment.
const hotBytes = 4 << 20

// hotTail holds the newest bytes of one file as they were written, so that a reader at the end of the log needs no I/O. It is a
// ring: the byte at offset o of the file is at ring[o % len(ring)]. Between groups, where the file may hold anything that does not parse, it holds zeros.
type hotTail struct {
	mu       sync.Mutex // held for a copy of a group or a window at most
	ring     []byte
	file     *segmentFile
	from, to int64 // what of file is in the ring
}

// add takes over a group that was written at start. limit bounds the ring.
func (h *hotTail) add(f *segmentFile, start int64, group []byte, limit int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ring == nil {
		h.ring = make([]byte, min(hotBytes, limit))
	}
	size := int64(len(h.ring))
	if f != h.file || start < h.to || start-h.to > size {
		h.file, h.from, h.to = f, start, start
	}
	for h.to < start {
		gap := h.ring[h.to%size:][:min(size-h.to%size, start-h.to)]
		clear(gap)
		h.to += int64(len(gap))
	}
	for len(group) > 0 {
		n := copy(h.ring[h.to%size:], group)
		group = group[n:]
		h.to += int64(n)
	}
	h.from = max(h.from, h.to-size)
}

// read fills b with the bytes of f from off on, and reports whether it has all of them.
func (h *hotTail) read(f *segmentFile, b []byte, off int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f != h.file || off < h.from || off+int64(len(b)) > h.to {
		return false
	}
	size := int64(len(h.ring))
	n := copy(b, h.ring[off%size:])
	copy(b[n:], h.ring)
	return true
}
