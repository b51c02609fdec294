package localtransport

// ring is a queue of bytes that grows up to a bound and is then written round and round, so that a long stream takes no more memory than its reader is behind.
type ring struct {
	buf   []byte
	first int // of what is held
	held  int
}

// firstRing is the least that a ring takes, in bytes.
const firstRing = 512

// put takes in as much of p as the bound allows, and returns how much.
func (r *ring) put(p []byte, bound int) int {
	p = p[:min(len(p), max(0, bound-r.held))]
	if r.held+len(p) > len(r.buf) {
		r.grow(min(bound, max(2*len(r.buf), r.held+len(p), firstRing)))
	}
	next := r.first + r.held
	if next >= len(r.buf) {
		next -= len(r.buf)
	}
	n := copy(r.buf[next:], p)
	copy(r.buf, p[n:])
	r.held += len(p)
	return len(p)
}

// grow makes room for size bytes.
func (r *ring) grow(size int) {
	buf := make([]byte, size)
	held := r.held
	r.take(buf[:held])
	r.buf, r.first, r.held = buf, 0, held
}

// take moves what is held into p, as much as it takes, and returns how much.
func (r *ring) take(p []byte) int {
	p = p[:min(len(p), r.held)]
	n := copy(p, r.buf[r.first:min(len(r.buf), r.first+len(p))])
	copy(p[n:], r.buf)
	r.held -= len(p)
	if r.first += len(p); r.first >= len(r.buf) {
		r.first -= len(r.buf)
	}
	if r.held == 0 {
		r.first = 0
	}
	return len(p)
}
