package filesink

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/weir-agent/weir/wab/vfs"
)

// copyBytes is the size of the steps in which a file is searched or copied.
const copyBytes = 64 << 10

// errChanged is the reason where the file is no longer what was written.
var errChanged = errors.New("the file was removed, replaced or cut by someone else")

// output is the file that is being written, and how the next one takes its place.
// It belongs to one goroutine.
type output struct {
	fs     vfs.FS
	name   string
	file   vfs.File // nil where none is open
	size   int64    // all before it is whole lines that are on stable storage
	opened int      // how many files were opened so far
	// failed: the file that has the name must not be opened again, only put aside;
	// empty: it holds nothing, so that it can be removed instead.
	failed, empty bool
}

// open opens the file, repairs its end and makes it where it is missing.
func (o *output) open() error {
	f, err := o.fs.Open(o.name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = o.fs.Create(o.name)
		if err == nil {
			if err = o.fs.SyncDir("."); err != nil {
				_ = f.Close() // empty, and not used
			}
		}
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", o.name, err)
	}
	size, err := o.repair(f)
	if err != nil {
		_ = f.Close() // nothing of it is believed
		return fmt.Errorf("repair %s: %w", o.name, err)
	}
	o.file, o.size = f, size
	o.opened++
	return nil
}

// repair moves what follows the last line feed of f, the torn line of a crash, to a
// file of its own and cuts it off. That line was never said to be delivered. A
// crash at any step leaves the line where it is or in both places.
func (o *output) repair(f vfs.File) (int64, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	whole, err := lastLineEnd(f, size)
	if err != nil {
		return 0, err
	}
	if whole < size {
		if err := o.saveTorn(f, whole, size); err != nil {
			return 0, err
		}
		if err := f.Truncate(whole); err != nil {
			return 0, err
		}
	}
	// Lines that an earlier run wrote and did not sync count from here on.
	if err := f.SyncData(); err != nil {
		return 0, err
	}
	return whole, o.fs.SyncDir(".")
}

// lastLineEnd returns the offset behind the last line feed in the first size bytes of f.
func lastLineEnd(f vfs.File, size int64) (int64, error) {
	buf := make([]byte, min(copyBytes, size))
	for end := size; end > 0; {
		start := max(0, end-copyBytes)
		part := buf[:end-start]
		if err := readFull(f, part, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// readFull reads len(p) bytes; io.EOF with all of them is no error.
func readFull(f vfs.File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	return err
}

func (o *output) saveTorn(f vfs.File, from, to int64) error {
	name, err := o.nextName(o.name + ".torn.")
	if err != nil {
		return err
	}
	dst, err := o.fs.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, min(copyBytes, to-from))
	for off := from; off < to && err == nil; off += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), to-off)]
		if err = readFull(f, part, off); err == nil {
			_, err = dst.WriteAt(part, off-from)
		}
	}
	if err == nil {
		err = dst.SyncData()
	}
	if err := errors.Join(err, dst.Close()); err != nil {
		return err
	}
	return o.fs.SyncDir(".")
}

// nextName returns prefix and a number above every one that is in use.
func (o *output) nextName(prefix string) (string, error) {
	entries, err := o.fs.ReadDir(".")
	if err != nil {
		return "", err
	}
	var last uint64
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name, prefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n < math.MaxUint64 {
			last = max(last, n)
		}
	}
	return prefix + strconv.FormatUint(last+1, 10), nil
}

// append writes whole lines behind the others and puts them on stable storage. After
// an error the file is closed, and is never written again.
func (o *output) append(parts ...[]byte) error {
	if o.failed {
		if err := o.putAside(); err != nil {
			return err
		}
	}
	if o.file == nil {
		if err := o.open(); err != nil {
			return err
		}
	}
	err := o.tryAppend(parts)
	if err != nil {
		err = errors.Join(fmt.Errorf("write %s: %w", o.name, err), o.retire(err))
	}
	return err
}

func (o *output) tryAppend(parts [][]byte) error {
	size, err := o.file.Size()
	if err != nil {
		return err
	}
	if size != o.size {
		return errChanged
	}
	for _, p := range parts {
		if _, err := o.file.WriteAt(p, size); err != nil {
			return err
		}
		size += int64(len(p))
	}
	if err := o.file.SyncData(); err != nil {
		return err
	}
	if err := o.checkName(size); err != nil {
		return err
	}
	o.size = size
	return nil
}

// checkName makes sure that the name leads to a file as long as the one that was
// written: lines in a file that was removed are not delivered.
func (o *output) checkName(size int64) error {
	f, err := o.fs.OpenRead(o.name)
	if errors.Is(err, fs.ErrNotExist) {
		return errChanged
	}
	if err != nil {
		return err
	}
	got, err := f.Size()
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got != size {
		return errChanged
	}
	return nil
}

// rotate puts the file aside under the next number. The next append makes a new one.
func (o *output) rotate() error {
	err := o.close()
	return errors.Join(err, o.setAside())
}

// retire gives the file up for the cause of a failure. What it holds beyond the last sync is cut
// off if that can be done, so that its lines do not stand here and in the next file too.
func (o *output) retire(cause error) error {
	o.empty = false
	if !errors.Is(cause, errChanged) { // else the bytes are someone else's
		err := o.file.Truncate(o.size) // only to be tidy: nothing relies on it
		o.empty = err == nil && o.size == 0
	}
	o.failed = true
	return errors.Join(o.close(), o.putAside())
}

// putAside makes the name of the failed file free. It may be called until it succeeds.
func (o *output) putAside() error {
	var err error
	if o.empty { // an outage leaves no file behind for each attempt
		if err = o.fs.Remove(o.name); err == nil {
			err = o.fs.SyncDir(".")
		}
	} else {
		err = o.setAside()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o.failed = false
	return nil
}

func (o *output) setAside() error {
	name, err := o.nextName(o.name + ".")
	if err != nil {
		return err
	}
	if err := o.fs.Rename(o.name, name); err != nil {
		return err
	}
	return o.fs.SyncDir(".")
}

func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	err := o.file.Close()
	o.file = nil
	return err
}
