package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// window is the time in which a disk was full.
type window struct{ from, to time.Time }

// disk is a small file system that can be filled up; without root it is a folder that cannot.
type disk struct {
	dir  string
	own  bool
	full []window
}

// newDisk makes the folder and mounts a file system of that size on it, where that may be done.
func newDisk(dir string, bytes int64) (*disk, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	d := &disk{dir: dir, own: os.Geteuid() == 0 && bytes > 0}
	if !d.own {
		return d, nil
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return nil, fmt.Errorf("chaos: mount a file system of %d bytes: %w", bytes, err)
	}
	return d, nil
}

func (d *disk) close() error {
	if !d.own {
		return nil
	}
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("chaos: unmount %s: %w", d.dir, err)
	}
	return nil
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill takes all space that is free.
func (d *disk) fill() error {
	d.full = append(d.full, window{from: time.Now()})
	f, err := os.Create(d.ballast())
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	chunk := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("chaos: fill the disk: %w", errors.Join(err, f.Close()))
	}
	return f.Close()
}

// free gives it back.
func (d *disk) free() error {
	err := os.Remove(d.ballast())
	d.full[len(d.full)-1].to = time.Now()
	return err
}

// wasFull reports whether the disk was full at a time, or shortly before.
func (d *disk) wasFull(at time.Time) bool {
	for _, w := range d.full {
		if !at.Before(w.from) && at.Before(w.to.Add(afterFull)) {
			return true
		}
	}
	return false
}

// afterFull is how long what was done on a full disk may take to come to a consumer's log.
const afterFull = 2 * time.Second
