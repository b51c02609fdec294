package wab

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

const (
	// zeroChunk is how much zero fill is written between two looks at whether somebody waits.
	zeroChunk = 1 << 20
	// urgentBytes is the least size of a segment that somebody waits for.
	urgentBytes = 4 << 20
)

// runPreparer makes the next segment while the active one is filled, so that a rotation costs the
// commit path no I/O.
func (s *Shard) runPreparer() {
	signal(s.prepare)
	retry := time.NewTimer(s.log.opts.RetryInterval)
	defer retry.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.prepare:
		case <-retry.C:
		}
		if err := s.prepareNext(); err != nil {
			retry.Reset(s.log.opts.RetryInterval)
		}
	}
}

// prepareNext makes the next segment, if one is needed.
func (s *Shard) prepareNext() error {
	s.mu.Lock()
	if !s.writable || s.closed {
		s.mu.Unlock()
		return nil
	}
	want := s.wantBytes
	if s.next != nil && (want == 0 || s.next.holds(want)) {
		s.prepareDone(nil)
		s.mu.Unlock()
		return nil
	}
	small := s.next
	s.next = nil
	s.lastNumber++
	number := s.lastNumber
	var spare *segmentFile
	if n := len(s.recyclable); n > 0 && want == 0 {
		spare = s.recyclable[n-1]
		s.recyclable = s.recyclable[:n-1]
	}
	s.mu.Unlock()

	if small != nil { // never used, and too small for a large record
		s.note("prepare", errors.Join(small.file.Close(), s.log.fs.Remove(small.name)))
	}
	f, err := s.makeSegment(number, spare, want)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.wantBytes = 0 // whoever wanted a larger one gets the error, too
		s.failedLocked("prepare", err)
		s.prepareDone(fmt.Errorf("%w: %w", ErrNoSpace, err))
		return err
	}
	s.next = f
	if s.active == nil && s.gather == nil {
		s.activate()
	}
	s.restoredLocked("prepare")
	s.prepareDone(nil)
	return nil
}

// prepareDone tells those that wait for a segment. Called with mu held.
func (s *Shard) prepareDone(err error) {
	s.prepareErr = err
	wake(s.prepared)
	s.prepared = nil
}

// segmentSize returns the size of a segment that holds a group of want bytes.
func (s *Shard) segmentSize(want int64) int64 {
	return max(s.log.opts.SegmentBytes, segment.SectorUp(segment.HeaderBytes+want)+2*footerRoom)
}

// makeSegment brings a segment with number into being, from a recycled file if there is one. When
// it returns, the header and the name are on stable storage.
func (s *Shard) makeSegment(number uint64, spare *segmentFile, want int64) (*segmentFile, error) {
	size := s.segmentSize(want)
	least := int64(urgentBytes)
	if want > 0 {
		least = size
	}
	if err := s.log.checkSpace(size); err != nil {
		return nil, err
	}
	random, err := randomUint64(s.log.opts.Rand)
	if err != nil {
		return nil, err
	}
	f := s.describe(number, s.log.instance)
	f.header = segment.Header{Instance: s.log.instance, Shard: uint32(s.number), Number: number, Nonce: segment.MakeNonce(random, s.log.instance, number), Created: s.now().UnixNano()}
	temp := s.path(stem(number, s.log.instance) + tempSuffix)
	filled := int64(0)
	if spare != nil {
		temp, filled = spare.name, spare.size
		f.file, err = s.log.fs.Open(temp)
	} else {
		f.file, err = s.log.fs.Create(temp)
	}
	if err == nil {
		f.size = max(size, filled)
		err = s.fillSegment(f, filled, least)
	}
	if err == nil {
		f.name = s.path(f.stemName() + activeSuffix)
		err = s.log.fs.Rename(temp, f.name)
	}
	if err == nil {
		temp = f.name
		err = s.log.fs.SyncDir(s.dir)
	}
	if err != nil {
		err = fmt.Errorf("wab: make segment %d of %s: %w", number, s.dir, err)
		if f.file != nil {
			err = errors.Join(err, f.file.Close())
		}
		if e := s.log.fs.Remove(temp); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e) // it is removed at the next start
		}
		return nil, err
	}
	f.tail, f.off, f.synced, f.fence = segment.HeaderBytes, segment.HeaderBytes, segment.HeaderBytes, segment.HeaderBytes
	return f, nil
}

// fillSegment reserves the file's space, writes zeros from filled on, writes the header and syncs. An fdatasync into space that
// holds zeros already has no metadata to write. Where somebody comes to wait for the segment, it becomes as long as it is by then.
func (s *Shard) fillSegment(f *segmentFile, filled, least int64) error {
	if filled < f.size {
		if err := f.file.Preallocate(filled, f.size-filled); err != nil {
			return err
		}
	}
	var zeros []byte
	for filled < f.size {
		if filled >= least && s.segmentAwaited() {
			if err := f.file.Truncate(filled); err != nil {
				return err
			}
			f.size = filled
			break
		}
		if zeros == nil {
			zeros = make([]byte, min(zeroChunk, f.size-filled))
		}
		n := min(int64(len(zeros)), f.size-filled)
		if err := writeAll(f.file, zeros[:n], filled); err != nil {
			return err
		}
		if filled += n; filled < f.size {
			// Bit by bit: all at once would keep the disk from the syncs that producers wait for.
			if err := f.file.SyncData(); err != nil {
				return err
			}
		}
	}
	if err := writeAll(f.file, segment.AppendHeader(nil, f.header), 0); err != nil {
		return err
	}
	return f.file.SyncData()
}

func (s *Shard) segmentAwaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.prepared != nil || s.active == nil
}

func writeAll(f vfs.File, b []byte, off int64) error {
	_, err := f.WriteAt(b, off)
	return err
}

// describe returns a segment by its number, without a file.
func (s *Shard) describe(number, instance uint64) *segmentFile {
	f := &segmentFile{number: number, instance: instance}
	f.addr = shardDir(s.number) + "/" + f.stemName() + sealedSuffix
	return f
}

func (f *segmentFile) stemName() string { return stem(f.number, f.instance) }
