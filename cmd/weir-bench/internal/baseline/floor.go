package baseline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/crc32"
	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// lookMillis is how long the reader waits for its connections before it looks whether it is to end.
const lookMillis = 100

// floorBuffer is how much of one connection is read at a time.
const floorBuffer = 512 << 10

// Floor is the least that a server can do which keeps the promise of a Durable ack on this machine: one thread reads every connection as epoll finds it ready, checks the CRC of each
// payload and copies it into a group; another one writes the group into a zero-filled file that it uses in a ring, calls fdatasync, and writes the acks of the group, one write for each
// connection. What is Buffered the first thread writes and acks itself. It has no recovery, no drain, no bounds and no fairness: what a server with these does beyond it is their cost.
//
// With keys a third thread computes the key of each Durable record, which no delivery can do without, behind the acks and not far behind.
//
// It speaks the wire as far as weir-bench does: Push and PushBatch, each of which fits into its buffer, on connections of one tier each. It calls ready once it listens, and serves until ctx ends.
func Floor(ctx context.Context, dir string, keys bool, ready func()) error {
	file, err := zeroFile(filepath.Join(dir, "floor"))
	if err != nil {
		return err
	}
	defer file.Close()
	s := &floor{file: file, conns: map[int]*floorConn{}, wake: make(chan struct{}, 1)}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("baseline: epoll: %w", err)
	}
	defer unix.Close(s.epoll)
	if s.listener, err = listenFloor(filepath.Join(dir, "floor.sock")); err != nil {
		return err
	}
	defer unix.Close(s.listener)
	if err := s.watch(s.listener); err != nil {
		return err
	}
	committed := make(chan error, 1)
	go func() { committed <- s.commit() }()
	var hashing sync.WaitGroup
	if keys {
		s.hash, s.hashed = make(chan []byte, groupsAhead), make(chan []byte, groupsAhead+2)
		hashing.Go(s.keys)
	}
	ready()
	err = s.read(ctx)
	close(s.wake)
	err = errors.Join(err, <-committed)
	if keys {
		close(s.hash)
		hashing.Wait()
	}
	for fd := range s.conns {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

type floor struct {
	file     *os.File
	epoll    int
	listener int
	conns    map[int]*floorConn // the reader's
	wake     chan struct{}      // holds one token while a group gathers
	plain    []byte             // Buffered records of one read; the reader's, as plainAt is
	plainAt  int64
	// hash takes the groups whose keys are due, hashed gives their memory back; nil without keys.
	hash, hashed chan []byte

	mu    sync.Mutex
	group []byte
	acked []*floorConn // who has frames in the group
}

// floorConn is one connection.
type floorConn struct {
	fd   int
	buf  []byte
	n    int    // bytes in buf
	acks []byte // of its Durable frames in the group that gathers; guarded by the lock of floor
	now  []byte // of its Buffered frames
}

const (
	// groupsAhead is how many groups the keys may be behind.
	groupsAhead = 16
	// keysNice is how far their thread stands behind the others, as that of weir's drain does.
	keysNice = 5
)

func listenFloor(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		return 0, fmt.Errorf("baseline: %w", err)
	}
	return fd, nil
}

func (s *floor) watch(fd int) error {
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("baseline: epoll: %w", err)
	}
	return nil
}

func (s *floor) read(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	events := make([]unix.EpollEvent, 256)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(s.epoll, events, lookMillis)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("baseline: epoll: %w", err)
		}
		for _, e := range events[:max(0, n)] {
			if int(e.Fd) == s.listener {
				err = s.accept()
			} else {
				err = s.take(s.conns[int(e.Fd)])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *floor) accept() error {
	fd, _, err := unix.Accept4(s.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	s.conns[fd] = &floorConn{fd: fd, buf: make([]byte, floorBuffer)}
	return s.watch(fd)
}

// take reads what a connection has sent, and puts its whole frames into the group.
func (s *floor) take(c *floorConn) error {
	n, err := unix.Read(c.fd, c.buf[c.n:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if n <= 0 || err != nil {
		delete(s.conns, c.fd)
		return unix.Close(c.fd)
	}
	c.n += n
	s.mu.Lock()
	first := len(c.acks) == 0
	used, err := s.frames(c)
	if first && len(c.acks) > 0 {
		s.acked = append(s.acked, c)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	c.n = copy(c.buf, c.buf[used:c.n])
	if len(s.plain) > 0 {
		return s.writePlain(c)
	}
	if used > 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// writePlain writes the Buffered records of one read and their acks.
func (s *floor) writePlain(c *floorConn) error {
	if s.plainAt+int64(len(s.plain)) > fileBytes {
		s.plainAt = 0
	}
	if _, err := s.file.WriteAt(s.plain, s.plainAt); err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	s.plainAt += int64(len(s.plain))
	_, err := unix.Write(c.fd, c.now)
	s.plain, c.now = s.plain[:0], c.now[:0]
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("baseline: %w", err)
	}
	return nil
}

// keys computes the keys of the records of each group, on a thread that the kernel puts behind the others.
func (s *floor) keys() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), keysNice) // it is slower where that is refused
	var hasher record.IDHasher
	index := uint64(0)
	for group := range s.hash {
		for b := group; len(b) > 0; {
			n := binary.LittleEndian.Uint32(b)
			index++
			hasher.ID(keySegment, index, b[4:4+n])
			b = b[4+n:]
		}
		s.hashed <- group
	}
}

// frames puts the frames at the start of the buffer into the group and returns how many bytes they took. s.mu is held.
func (s *floor) frames(c *floorConn) (used int, err error) {
	for {
		b := c.buf[used:c.n]
		if len(b) < frame.HeaderLen {
			return used, nil
		}
		h, err := frame.ParseHeader(b, len(c.buf))
		if err != nil {
			return used, fmt.Errorf("baseline: %w", err)
		}
		if len(b) < h.FrameLen() {
			return used, nil
		}
		payload := b[frame.HeaderLen : frame.HeaderLen+h.PayloadLen]
		if crc32.ChecksumIEEE(payload) != binary.LittleEndian.Uint32(b[frame.HeaderLen+h.PayloadLen:]) {
			return used, errors.New("baseline: a payload with another CRC")
		}
		to, acks := &s.group, &c.acks
		if h.Durability == record.Buffered {
			to, acks = &s.plain, &c.now
		}
		if h.Type == frame.PushBatch {
			records := int(binary.LittleEndian.Uint16(payload[1:])) // behind the version
			*to = append(*to, payload[frame.BatchPrefixBytes:]...)  // each with its length
			*acks = frame.AppendAckBatch(*acks, records, func(int) bool { return true })
		} else {
			*to = binary.LittleEndian.AppendUint32(*to, uint32(len(payload)))
			*to = append(*to, payload...)
			*acks = frame.AppendAck(*acks)
		}
		used += h.FrameLen()
	}
}

// commit makes one group durable after the other and writes its acks.
func (s *floor) commit() error {
	runtime.LockOSThread()
	var spare []byte
	var acks [][]byte
	var whom []*floorConn
	off := int64(0)
	for range s.wake {
		s.mu.Lock()
		group := s.group
		s.group = spare[:0]
		whom = append(whom[:0], s.acked...)
		s.acked = s.acked[:0]
		acks = slices.Grow(acks[:0], len(whom))
		for _, c := range whom {
			acks = append(acks, c.acks)
			c.acks = nil
		}
		s.mu.Unlock()
		spare = group
		if len(group) == 0 {
			continue
		}
		if off+int64(len(group)) > fileBytes {
			off = 0
		}
		if _, err := s.file.WriteAt(group, off); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		if err := unix.Fdatasync(int(s.file.Fd())); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		off += (int64(len(group)) + sector - 1) / sector * sector
		for i, c := range whom {
			// A client that reads its acks leaves room for those of one window.
			if _, err := unix.Write(c.fd, acks[i]); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.EBADF) {
				return fmt.Errorf("baseline: %w", err)
			}
		}
		if s.hash != nil {
			s.hash <- group
			select {
			case spare = <-s.hashed:
			default:
				spare = nil
			}
		}
	}
	return nil
}
