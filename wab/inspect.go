package wab

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// SegmentInfo is what can be said of a segment file from its header and its footer.
type SegmentInfo struct {
	Name    string // path in the data folder
	Address string // the segment in coordinates
	Shard   int
	Number  uint64
	Sealed  bool
	Bytes   int64
	// Records is the index of the last record; of a segment without a footer it is known after a Walk only.
	Records uint64
	Created time.Time
	First   time.Time // append times, of a segment with a footer
	Last    time.Time
	// Problem says why header or footer do not tell all; empty for a sealed segment that looks whole.
	Problem string

	header segment.Header
}

// Segments lists the segment files of all shards in order. It takes no lock and changes nothing, so it may be used
// while another process has the log open; a segment that goes meanwhile is left out.
func Segments(fsys vfs.FS) ([]SegmentInfo, error) {
	shards, err := fsys.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("wab: list the data folder: %w", err)
	}
	var all []SegmentInfo
	for _, dir := range shards {
		n, ok := parseShardDir(dir.Name)
		if !ok || !dir.Mode.IsDir() {
			continue
		}
		entries, err := fsys.ReadDir(dir.Name)
		if err != nil {
			return nil, fmt.Errorf("wab: list %s: %w", dir.Name, err)
		}
		for _, e := range entries {
			name, ok := parseSegmentName(e.Name)
			if !ok || !e.Mode.IsRegular() || name.suffix != activeSuffix && name.suffix != sealedSuffix {
				continue
			}
			info, err := inspect(fsys, n, dir.Name, e, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, info)
		}
	}
	return all, nil
}

func inspect(fsys vfs.FS, shard int, dir string, e vfs.Entry, name segmentName) (SegmentInfo, error) {
	info := SegmentInfo{
		Name: path.Join(dir, e.Name), Address: path.Join(dir, name.stem()+sealedSuffix), Shard: shard,
		Number: name.number, Sealed: name.suffix == sealedSuffix, Bytes: e.Size,
	}
	f, err := fsys.OpenRead(info.Name)
	if err != nil {
		return info, fmt.Errorf("wab: open %s: %w", info.Name, err)
	}
	defer f.Close() // only read
	return info, info.read(f)
}

// read fills in what header and footer say.
func (i *SegmentInfo) read(f vfs.File) error {
	head := make([]byte, segment.HeaderBytes+segment.GroupHeaderBytes)
	n, err := readFull(f, head, 0)
	if err != nil {
		return fmt.Errorf("wab: read %s: %w", i.Name, err)
	}
	end := make([]byte, min(segment.FooterBytes, i.Bytes))
	if _, err := readFull(f, end, i.Bytes-int64(len(end))); err != nil {
		return fmt.Errorf("wab: read %s: %w", i.Name, err)
	}
	h, damaged, err := segment.ParseHeader(head[:min(n, segment.HeaderBytes)])
	switch {
	case errors.Is(err, segment.ErrHeader):
		i.Problem = "no copy of the header verifies"
		if nonce, ok := segment.FindNonce(head[min(n, segment.HeaderBytes):n], end, i.Bytes); ok {
			h = segment.Header{Nonce: nonce}
		}
	case err != nil:
		i.Problem = err.Error()
		return nil
	case damaged:
		i.Problem = "one copy of the header does not verify"
	}
	i.header, i.Created = h, time.Unix(0, h.Created)
	foot, ok := segment.ParseFooter(end, h.Nonce, i.Bytes-int64(len(end)))
	switch {
	case ok:
		i.Records, i.First, i.Last = foot.Records, time.Unix(0, foot.First), time.Unix(0, foot.Last)
	case i.Sealed:
		i.Problem = "the footer is missing"
	}
	return nil
}

// Walk reads a segment from its beginning to its end. found is called with each record and, in its place, with each
// piece of damage; the record's payload is valid during the call only. An error of found ends the walk and is returned. In a
// segment that is being written the end is where the last whole group ends. Walk takes no lock and changes nothing.
func Walk(fsys vfs.FS, info SegmentInfo, found func(r *record.Record, d *Damage) error) (SegmentInfo, error) {
	if info.header.Nonce == 0 {
		return info, &CorruptError{Segment: info.Name, Reason: "nothing in it can be read: " + info.Problem}
	}
	f, err := fsys.OpenRead(info.Name)
	if errors.Is(err, fs.ErrNotExist) { // it was sealed meanwhile
		f, err = fsys.OpenRead(info.Address)
	}
	if err != nil {
		return info, fmt.Errorf("wab: open %s: %w", info.Name, err)
	}
	defer f.Close()                        // only read
	if size, err := f.Size(); err == nil { // it was cut to its length meanwhile
		info.Bytes = min(info.Bytes, size)
	}
	w := window{file: f, sc: segment.NewScanner(info.header.Nonce, segment.HeaderBytes, 1, info.Bytes), patch: true}
	for {
		it, err := w.next()
		if err != nil {
			return info, fmt.Errorf("wab: read %s: %w", info.Name, err)
		}
		switch it.Kind {
		case segment.Record:
			info.Records = max(info.Records, it.Index)
			r := record.Record{
				Coordinate: record.Coordinate{Segment: info.Address, Index: it.Index, ID: record.ComputeID(info.Address, it.Index, it.Payload)},
				Payload:    it.Payload, Appended: time.Unix(0, it.Time),
			}
			err = found(&r, nil)
		case segment.Damage:
			err = found(nil, itemDamage(info.Address, it, int64(it.Lost), it.Reason))
		case segment.Tail:
			if info.Sealed || it.Begun {
				lost := int64(-1)
				if info.Records >= it.Index {
					lost = int64(info.Records + 1 - it.Index)
				}
				err = found(nil, itemDamage(info.Address, it, lost, "the end of the segment does not verify"))
			}
		default:
			return info, nil
		}
		if err != nil {
			return info, err
		}
	}
}

func itemDamage(address string, it segment.Item, lost int64, reason string) *Damage {
	return &Damage{Segment: address, Offset: it.Off, Length: it.Len, FirstIndex: it.Index, Lost: lost, Reason: reason, Durable: it.Durable}
}
