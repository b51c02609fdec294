package vfstest

import (
	"maps"
	"math/rand/v2"
)

// Keep says what of the unsynced changes an image holds.
type Keep int

const (
	// KeepSome keeps a subset that Choice.Seed decides.
	KeepSome Keep = iota
	// KeepNone keeps nothing that was not synced.
	KeepNone
	// KeepAll keeps everything, except bytes that a failed sync has dropped.
	KeepAll
)

// Choice picks one of the images that a power cut may leave. Equal choices give equal images of
// disks with an equal history.
type Choice struct {
	Keep Keep
	Seed uint64 // of KeepSome
	// Garbage lets KeepSome leave random bytes where a piece of an unsynced write went:
	// exactly there, and never beside it.
	Garbage bool
	// BothNames lets KeepSome leave the old name beside the new one after an unsynced rename within a
	// folder, as a file system may where vfs.Dir has to link and then remove.
	BothNames bool
}

// Image returns what may be found after a power cut at this moment; d goes on unchanged.
//
// It is the synced state plus any subset of what was not synced. Of each write, every part within
// one sector of SectorBytes is there, is not, or is garbage; where the write extended the file, the new size
// is there wholly, up to the end of one of these parts, or not. Every truncation, every preallocation
// and every change of a name is there or not. All of these are independent, also where
// a journalling file system would keep an order. What the image holds is durable.
//
// It costs a visit of each file and a copy of those that have unsynced changes.
func (d *Disk) Image(choice Choice) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	im := &imager{choice: choice, twins: map[*node]*node{}, odds: odds{writes: 1, sizes: 1, names: 1}}
	if choice.Keep == KeepSome {
		r := rand.New(rand.NewPCG(choice.Seed, 0))
		im.odds = odds{writes: pickOdds(r), sizes: pickOdds(r), names: pickOdds(r)}
	}
	out := &Disk{nodes: d.nodes, capacity: d.capacity, locked: map[*node]bool{}}
	out.root = im.node(d.root)
	for _, n := range im.twins {
		out.used += n.alloc
	}
	return out
}

// Crash is Halt, then Image.
func (d *Disk) Crash(choice Choice) *Disk {
	d.Halt()
	return d.Image(choice)
}

// Kill returns what is found after the death of the process alone: all that was written, as
// little synced as before. Locks are free. d is halted.
func (d *Disk) Kill() *Disk {
	d.Halt()
	return d.Clone()
}

// Halt makes every later operation fail with ErrCrashed, on open files, too. Images can still
// be taken and files inspected.
func (d *Disk) Halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashed = true
}

// Clone returns a copy that goes on by itself, with the same unsynced changes and no locks.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{
		root: cloner{}.node(d.root), nodes: d.nodes,
		capacity: d.capacity, used: d.used, locked: map[*node]bool{},
	}
}

// odds are the probabilities of one image, so that images where most of one kind is there
// and most of another is not come up.
type odds struct{ writes, sizes, names float64 }

func pickOdds(r *rand.Rand) float64 {
	return [...]float64{0, 0.1, 0.5, 0.5, 0.9, 1}[r.IntN(6)]
}

// oneGarbageIn is how many of the pieces that are not kept there are to a piece of garbage.
const oneGarbageIn = 4

type imager struct {
	choice Choice
	odds   odds
	twins  map[*node]*node
}

// node returns the image of n. The choices for a node depend on the seed and on its id alone.
func (im *imager) node(n *node) *node {
	if twin := im.twins[n]; twin != nil {
		return twin
	}
	twin := &node{id: n.id, folder: n.folder, named: true}
	im.twins[n] = twin
	if !n.folder {
		twin.durable = im.content(n)
		twin.now = twin.durable.share()
		twin.alloc = min(n.alloc, twin.now.size)
		return twin
	}
	names := n.lasting
	if len(n.moves) > 0 && im.choice.Keep != KeepNone {
		names = maps.Clone(names)
		r := im.rand(n)
		for i := range n.moves {
			m := n.moves[i]
			if im.choice.Keep == KeepAll {
				m.apply(names)
			} else if r.Float64() < im.odds.names {
				if im.choice.BothNames && r.IntN(2) == 0 {
					m.from = ""
				}
				m.apply(names)
			}
		}
	}
	twin.names = make(map[string]*node, len(names))
	for name, child := range names {
		twin.names[name] = im.node(child)
	}
	twin.lasting = maps.Clone(twin.names)
	return twin
}

func (im *imager) rand(n *node) *rand.Rand {
	return rand.New(rand.NewPCG(im.choice.Seed, n.id))
}

func (im *imager) content(n *node) content {
	c := n.durable.share()
	if len(n.changes) == 0 || im.choice.Keep == KeepNone {
		return c
	}
	r := im.rand(n)
	size := c.size
	for i := range n.changes {
		ch := &n.changes[i]
		if len(ch.data) > 0 {
			size = max(size, im.sizeOfWrite(r, ch, size))
			im.write(r, &c, ch)
			continue
		}
		if im.choice.Keep == KeepAll || r.Float64() < im.odds.sizes {
			size = ch.resize(size)
			if ch.cut {
				c.setSize(size)
			}
		}
	}
	c.setSize(size)
	return c
}

// sizeOfWrite chooses how much of a write's extension of the file there is.
func (im *imager) sizeOfWrite(r *rand.Rand, ch *change, size int64) int64 {
	end := ch.off + int64(len(ch.data))
	switch {
	case end <= size || im.choice.Keep == KeepAll:
		return end
	case r.Float64() >= im.odds.sizes:
		return size
	case r.IntN(4) > 0:
		return end
	}
	sectors := (end - ch.off + SectorBytes - 1) / SectorBytes
	return min(end, (ch.off/SectorBytes+1+r.Int64N(sectors))*SectorBytes)
}

// write applies the pieces of a write that survive.
func (im *imager) write(r *rand.Rand, c *content, ch *change) {
	if im.choice.Keep == KeepAll {
		c.writeAt(ch.data, ch.off)
		return
	}
	for at := 0; at < len(ch.data); {
		off := ch.off + int64(at)
		n := min(len(ch.data)-at, int(SectorBytes-off%SectorBytes))
		switch {
		case r.Float64() < im.odds.writes:
			c.writeAt(ch.data[at:at+n], off)
		case im.choice.Garbage && r.IntN(oneGarbageIn) == 0:
			junk := make([]byte, n)
			for i := range junk {
				junk[i] = byte(r.Uint32())
			}
			c.writeAt(junk, off)
		}
		at += n
	}
}
