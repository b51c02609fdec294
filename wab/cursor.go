package wab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/weir-agent/weir/wab/vfs"
)

// MaxMarks is how many marks Confirm keeps.
const MaxMarks = 64

// The cursor file has two slots; each write goes to the older one and is synced, so
// that progress needs no free space and a torn write leaves the other slot. What it says is a
// hint: with no cursor at all records are delivered again, none is skipped.
//
//	 0  8  magic "weir-cur"     40  8  next record: index       72  4  number of marks
//	 8  8  generation           48  8  highest segment number   76  4  0
//	16  8  instance             56  8  synced up to: segment    80  .. marks: segment u64, index u64
//	24  8  shard                64  8  synced up to: index       .. 4  CRC-32C of all before it
//	32  8  next record: segment
const (
	cursorMagic     = "weir-cur"
	cursorSlotBytes = 4096
	cursorFixed     = 80
	cursorMarkBytes = 16
)

// cursorState is what one slot holds.
type cursorState struct {
	next    Position
	highest uint64   // segment number
	synced  Position // the last record known to be on stable storage
	marks   []Position
}

// cursorFile is the file of one shard; it is used by one goroutine at a time.
type cursorFile struct {
	file       vfs.File // nil until the first save
	name       string
	instance   uint64
	shard      int
	generation uint64
	damaged    bool // a slot was written once and does not verify, or is not there
	slots      [2]slotState
}

// slotState is what is known of a slot on disk.
type slotState struct {
	whole   bool
	highest uint64
}

func (c *cursorFile) appendSlot(b []byte, st cursorState) []byte {
	b = append(b, cursorMagic...)
	for _, v := range []uint64{
		c.generation, c.instance, uint64(c.shard), st.next.Segment, st.next.Index,
		st.highest, st.synced.Segment, st.synced.Index, uint64(len(st.marks)),
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, m := range st.marks {
		b = binary.LittleEndian.AppendUint64(b, m.Segment)
		b = binary.LittleEndian.AppendUint64(b, m.Index)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// parseSlot returns the state and the generation of a slot that is whole and of this shard.
func (c *cursorFile) parseSlot(b []byte) (cursorState, uint64, bool) {
	if len(b) < cursorFixed+4 || string(b[:8]) != cursorMagic {
		return cursorState{}, 0, false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	n := word(9)
	if n > MaxMarks || len(b) < cursorFixed+int(n)*cursorMarkBytes+4 {
		return cursorState{}, 0, false
	}
	end := cursorFixed + int(n)*cursorMarkBytes
	if binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)) {
		return cursorState{}, 0, false
	}
	if word(2) != c.instance || word(3) != uint64(c.shard) {
		return cursorState{}, 0, false
	}
	st := cursorState{
		next:    Position{Segment: word(4), Index: word(5)},
		highest: word(6),
		synced:  Position{Segment: word(7), Index: word(8)},
	}
	for i := range int(n) {
		st.marks = append(st.marks, Position{Segment: word(10 + 2*i), Index: word(11 + 2*i)})
	}
	return st, word(1), true
}

// load reads the newer of the two slots that are whole. Where there is none, the
// zero state is returned: everything on disk is delivered again.
func (c *cursorFile) load(fsys vfs.FS) (cursorState, error) {
	f, err := fsys.Open(c.name)
	if errors.Is(err, fs.ErrNotExist) {
		return cursorState{}, nil
	}
	if err != nil {
		return cursorState{}, fmt.Errorf("wab: open cursor: %w", err)
	}
	var newest cursorState
	buf := make([]byte, cursorSlotBytes)
	for slot := range int64(2) {
		n, err := f.ReadAt(buf, slot*cursorSlotBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			c.damaged = true // an unreadable slot is a slot that is not whole
			continue
		}
		st, gen, ok := c.parseSlot(buf[:n])
		if !ok {
			c.damaged = true
			continue
		}
		c.slots[slot] = slotState{true, st.highest}
		if gen >= c.generation {
			newest, c.generation = st, gen
		}
	}
	c.file = f
	return newest, nil
}

// save writes st to the older slot and syncs it. Then it writes the other one too, if that would be no substitute
// for this one: it is not whole, or so old that lostNumbers does not reach from its highest number.
func (c *cursorFile) save(fsys vfs.FS, dir string, st cursorState) error {
	if c.file == nil {
		if err := c.create(fsys, dir, st); err != nil {
			return err
		}
	}
	if err := c.saveSlot(st); err != nil {
		return err
	}
	if other := c.slots[(c.generation+1)%2]; !other.whole || other.highest+lostNumbers/2 <= st.highest {
		return c.saveSlot(st)
	}
	return nil
}

func (c *cursorFile) saveSlot(st cursorState) error {
	c.generation++
	which := c.generation % 2
	c.slots[which] = slotState{} // until it is synced
	slot := c.appendSlot(make([]byte, 0, cursorFixed+MaxMarks*cursorMarkBytes+4), st)
	// The write makes the slot's pages dirty again, so that a sync after a failed one is to be believed for them.
	if _, err := c.file.WriteAt(slot, int64(which)*cursorSlotBytes); err != nil {
		return fmt.Errorf("wab: write cursor: %w", err)
	}
	if err := c.file.SyncData(); err != nil {
		return fmt.Errorf("wab: sync cursor: %w", err)
	}
	c.slots[which] = slotState{true, st.highest}
	return nil
}

// create makes the file, which load did not find; an earlier try may have left a part of it. Both slots are written, so that one that does not
// verify, be it of zeros, has lost what it said.
func (c *cursorFile) create(fsys vfs.FS, dir string, st cursorState) error {
	f, err := fsys.Create(c.name)
	if errors.Is(err, fs.ErrExist) {
		f, err = fsys.Open(c.name)
	}
	if err != nil {
		return fmt.Errorf("wab: create cursor: %w", err)
	}
	c.generation++
	both := c.appendSlot(make([]byte, 0, 2*cursorSlotBytes), st)
	both = append(both, make([]byte, cursorSlotBytes-len(both))...)
	both = append(both, both...)
	err = writeAll(f, both, 0)
	if err == nil {
		err = f.SyncData() // a file that is shorter has lost a slot
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("wab: create cursor: %w", errors.Join(err, f.Close()))
	}
	c.file = f
	c.slots = [2]slotState{{true, st.highest}, {true, st.highest}}
	return nil
}

func (c *cursorFile) close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}
