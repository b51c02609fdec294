package wab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// Damage is the report of bytes that do not verify. It stands as JSON beside the copy of the bytes.
type Damage struct {
	Segment    string    `json:"segment"` // address
	Offset     int64     `json:"offset"`
	Length     int64     `json:"length"`
	FirstIndex uint64    `json:"first_index"` // of the records that are missing
	Lost       int64     `json:"lost"`        // records that are missing; -1: not known
	Reason     string    `json:"reason"`
	Durable    bool      `json:"durable"` // it is proved that the bytes were on stable storage
	Found      time.Time `json:"found"`
}

// name is equal for equal damage, so that what is found again is kept once.
func (d Damage) name() string {
	flat := strings.TrimSuffix(strings.ReplaceAll(d.Segment, "/", "-"), sealedSuffix)
	return fmt.Sprintf("%s-%012d-%d", flat, d.Offset, d.FirstIndex)
}

const (
	quarantineBytes  = ".bytes"
	quarantineReport = ".json"
	copyChunk        = 1 << 20
)

// quarantine keeps a durable copy of the damaged bytes of src and the report. It reports
// whether the damage is new.
func quarantine(fsys vfs.FS, src vfs.File, d Damage) (bool, error) {
	report := path.Join(quarantineName, d.name()+quarantineReport)
	if f, err := fsys.OpenRead(report); err == nil {
		return false, f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("wab: quarantine: %w", err)
	}
	if d.Length > 0 && src != nil {
		err := keepFile(fsys, path.Join(quarantineName, d.name()+quarantineBytes), func(dst vfs.File) error {
			return copyRange(dst, src, d.Offset, d.Length)
		})
		if err != nil {
			return false, fmt.Errorf("wab: quarantine: %w", err)
		}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return false, fmt.Errorf("wab: quarantine: %w", err)
	}
	err = keepFile(fsys, report, func(dst vfs.File) error { return writeAll(dst, append(text, '\n'), 0) })
	if err != nil {
		return false, fmt.Errorf("wab: quarantine: %w", err)
	}
	return true, nil
}

// keepFile makes a file with what fill writes, whole and durable or not at all: a half-made one
// of an earlier try is replaced.
func keepFile(fsys vfs.FS, name string, fill func(vfs.File) error) error {
	temp := name + tempSuffix
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.SyncData()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fsys.Remove(temp))
	}
	if err = fsys.Rename(temp, name); errors.Is(err, fs.ErrExist) {
		err = fsys.Remove(temp) // the same bytes of a try that was cut off behind the rename
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// copyRange copies what can be read of src; a part that cannot be read is left as zeros, as the
// reader took it.
func copyRange(dst, src vfs.File, off, n int64) error {
	buf := make([]byte, min(n, copyChunk))
	for at := int64(0); at < n; {
		b := buf[:min(int64(len(buf)), n-at)]
		got, err := readPatched(src, b, off+at)
		if got == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := writeAll(dst, b[:got], at); err != nil {
			return err
		}
		at += int64(got)
	}
	return nil
}

// readPatched reads like ReadAt, but a page that the disk cannot read counts as zeros.
func readPatched(src vfs.File, b []byte, off int64) (int, error) {
	n, err := src.ReadAt(b, off)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	const page = 4096
	total := 0
	for total < len(b) {
		part := b[total:min(len(b), total+page)]
		n, err := src.ReadAt(part, off+int64(total))
		total += n
		if errors.Is(err, io.EOF) {
			return total, err
		}
		if err != nil {
			clear(part[n:])
			total += len(part) - n
		}
	}
	return total, nil
}

// Quarantined is one report in the quarantine folder.
type Quarantined struct {
	Name string `json:"name"`
	Damage
	// Kept is how many damaged bytes are kept beside the report.
	Kept int64 `json:"kept_bytes"`
}

const maxReport = 64 << 10

// Quarantine lists the reports of a data folder, in the order of their names. It takes no lock and changes
// nothing. A report that cannot be read is in the list with the reason in Reason.
func Quarantine(fsys vfs.FS) ([]Quarantined, error) {
	entries, err := fsys.ReadDir(quarantineName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wab: list the quarantine: %w", err)
	}
	kept := map[string]int64{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name, quarantineBytes); ok {
			kept[name] = e.Size
		}
	}
	var all []Quarantined
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, quarantineReport)
		if !ok {
			continue
		}
		q := Quarantined{Name: name, Kept: kept[name]}
		if err := readReport(fsys, path.Join(quarantineName, e.Name), &q.Damage); err != nil {
			q.Damage = Damage{Lost: -1, Reason: "the report cannot be read: " + err.Error()}
		}
		all = append(all, q)
	}
	return all, nil
}

func readReport(fsys vfs.FS, name string, d *Damage) error {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return err
	}
	b := make([]byte, maxReport)
	n, err := readFull(f, b, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return json.Unmarshal(b[:n], d)
}

// Salvage goes through the kept bytes of a report and gives found each stretch that has the form of a record, without any check of its
// contents: what the checksum no longer vouches for. It returns how many there were.
func Salvage(fsys vfs.FS, q Quarantined, found func(payload []byte) error) (int, error) {
	if q.Kept == 0 {
		return 0, nil
	}
	f, err := fsys.OpenRead(path.Join(quarantineName, q.Name+quarantineBytes))
	if err != nil {
		return 0, fmt.Errorf("wab: salvage: %w", err)
	}
	b := make([]byte, min(q.Kept, segment.MaxGroupBytes))
	n, err := readFull(f, b, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("wab: salvage: %w", err)
	}
	count := 0
	for _, payload := range segment.Salvage(b[:n]) {
		if err := found(payload); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}
