package vfstest

import (
	"io"
	"maps"
)

// SectorBytes is the grain at which an unsynced write survives a power cut or does not.
const SectorBytes = 512

// content is the bytes of a file: b, and zeros from there up to size. Its array is copied before
// the first write after it was shared.
type content struct {
	b      []byte
	size   int64
	shared bool
}

// share returns a second holder of the same bytes. It costs no copy.
func (c *content) share() content {
	c.shared = true
	return *c
}

func (c *content) readAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), c.size-off))
	var copied int
	if off < int64(len(c.b)) {
		copied = copy(p[:n], c.b[off:])
	}
	clear(p[copied:n])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (c *content) writeAt(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	c.own(int(end))
	copy(c.b[off:end], p)
	c.size = max(c.size, end)
}

// own makes b private and at least n bytes long.
func (c *content) own(n int) {
	had := len(c.b)
	n = max(n, had)
	switch {
	case c.shared || cap(c.b) < n:
		room := n
		if n > had {
			room = max(n, 2*had)
		}
		fresh := make([]byte, n, room)
		copy(fresh, c.b)
		c.b, c.shared = fresh, false
	case n > had:
		c.b = c.b[:n]
		clear(c.b[had:])
	}
}

func (c *content) setSize(n int64) {
	if n < int64(len(c.b)) {
		c.b = c.b[:n]
	}
	c.size = n
}

// change is one unsynced change of a file: a write where data is not empty, and else a new
// size, which shrinks the file only where cut is set. It is never modified.
type change struct {
	off  int64
	data []byte
	size int64
	cut  bool
}

// move is one unsynced change of a folder: node got the name, or lost it where gone is set. A rename
// within a folder is one move, with the name it had before in from.
type move struct {
	name, from string
	node       *node
	gone       bool
}

func (m *move) apply(names map[string]*node) {
	if m.from != "" && names[m.from] == m.node {
		delete(names, m.from)
	}
	switch {
	case !m.gone:
		names[m.name] = m.node
	case names[m.name] == m.node:
		delete(names, m.name)
	}
}

// node is a file or a folder. Its disk's mutex guards it.
type node struct {
	id     uint64 // seeds the choices of an image, so that no order of visits matters
	folder bool

	// Of a file: what reads see, what is on stable storage, and the changes in between.
	now, durable content
	changes      []change
	settled      int   // how many changes were made durable or dropped; changes begins there
	alloc        int64 // bytes [0, alloc) have space
	named        bool  // it has a name now, so its space is in use

	// Of a folder: the same of its names.
	names, lasting map[string]*node
	moves          []move
	settledMoves   int
}

func (n *node) change(c change) {
	n.changes = append(n.changes, c)
	if len(c.data) > 0 {
		n.now.writeAt(c.data, c.off)
		return
	}
	n.now.setSize(c.resize(n.now.size))
}

// resize returns the size after a change of size alone.
func (c *change) resize(size int64) int64 {
	if c.cut {
		return c.size
	}
	return max(size, c.size)
}

// mark names the changes that there are now, for settle.
func (n *node) mark() int { return n.settled + len(n.changes) }

// settle ends the changes before mark: they become durable, or are dropped for good
// while reads go on to see them. It costs the bytes of these changes.
func (n *node) settle(mark int, drop bool) {
	count := max(mark-n.settled, 0)
	for _, c := range n.changes[:count] {
		switch {
		case drop:
		case len(c.data) > 0:
			n.durable.writeAt(c.data, c.off)
		default:
			n.durable.setSize(c.resize(n.durable.size))
		}
	}
	n.settled += count
	n.changes = n.changes[count:]
	if len(n.changes) == 0 {
		n.changes = nil
	}
}

func (n *node) move(m move) {
	m.apply(n.names)
	n.moves = append(n.moves, m)
}

func (n *node) markMoves() int { return n.settledMoves + len(n.moves) }

func (n *node) settleMoves(mark int) {
	count := max(mark-n.settledMoves, 0)
	for i := range n.moves[:count] {
		n.moves[i].apply(n.lasting)
	}
	n.settledMoves += count
	n.moves = n.moves[count:]
	if len(n.moves) == 0 {
		n.moves = nil
	}
}

// cloner copies a tree. Files share their bytes until one side writes.
type cloner map[*node]*node

func (c cloner) node(n *node) *node {
	if twin := c[n]; twin != nil {
		return twin
	}
	twin := new(node)
	*twin = *n
	c[n] = twin
	n.changes = n.changes[:len(n.changes):len(n.changes)] // neither side appends into the other's
	twin.changes = n.changes
	twin.now, twin.durable = n.now.share(), n.durable.share()
	if !n.folder {
		return twin
	}
	twin.names, twin.lasting = c.names(n.names), c.names(n.lasting)
	twin.moves = make([]move, len(n.moves))
	for i, m := range n.moves {
		m.node = c.node(m.node)
		twin.moves[i] = m
	}
	return twin
}

func (c cloner) names(names map[string]*node) map[string]*node {
	twins := maps.Clone(names)
	for name, n := range names {
		twins[name] = c.node(n)
	}
	return twins
}
