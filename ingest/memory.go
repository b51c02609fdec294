package ingest

import (
	"sync"
	"sync/atomic"
)

// firstSlabBytes is the buffer that a connection reads into first. It is not
// charged to the budget; MaxConnections bounds it.
const firstSlabBytes = 16 << 10

// readAheadSlabBytes is what a connection whose peer sends a lot reads into: 256 frames of 256 bytes at a time, so that they become one group.
const readAheadSlabBytes = 128 << 10

// readAheadClass is the class of readAheadSlabBytes.
const readAheadClass = 2

// slabClasses are the sizes of read buffers. The last one holds the largest
// frame: 16 MiB of payload, header and trailer.
var slabClasses = [...]int{firstSlabBytes, 64 << 10, readAheadSlabBytes, 256 << 10, 1 << 20, 4 << 20, 16<<20 + 4<<10}

// slabClass returns the smallest class that holds n bytes, or the largest one.
func slabClass(n int) int {
	for i, size := range slabClasses {
		if n <= size {
			return i
		}
	}
	return len(slabClasses) - 1
}

// slabBytes returns the size of the class that holds n bytes.
func slabBytes(n int) int { return slabClasses[slabClass(n)] }

// slab is one read buffer.
type slab struct {
	b     []byte
	class int
}

// memory hands out read buffers and counts what is in use against the budget. It
// is safe for use by several goroutines.
type memory struct {
	limit int64
	used  atomic.Int64
	pools [len(slabClasses)]sync.Pool
}

// take charges n bytes, or reports that they would exceed the budget.
func (m *memory) take(n int64) bool {
	if m.used.Add(n) <= m.limit {
		return true
	}
	m.used.Add(-n)
	return false
}

func (m *memory) give(n int64) { m.used.Add(-n) }

// slab returns a buffer of a class, or nil if the budget has no room for it. The
// first class is always there.
func (m *memory) slab(class int) *slab {
	size := slabClasses[class]
	if class > 0 && !m.take(int64(size)) {
		return nil
	}
	if s, ok := m.pools[class].Get().(*slab); ok {
		return s
	}
	return &slab{b: make([]byte, size), class: class}
}

// spare returns a buffer that a connection could do without: nil also where it would take of the second half of the budget, which is for
// frames that need the room, and for what waits for its replies.
func (m *memory) spare(class int) *slab {
	if class > 0 && m.used.Load()+int64(slabClasses[class]) > m.limit/2 {
		return nil
	}
	return m.slab(class)
}

// release takes a buffer back; nil is allowed.
func (m *memory) release(s *slab) {
	if s == nil {
		return
	}
	if s.class > 0 {
		m.give(int64(slabClasses[s.class]))
	}
	m.pools[s.class].Put(s)
}
