//go:build linux || darwin

package localtransport

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weir-agent/weir/weida/transport"
)

// The kinds of chunks.
const (
	chunkPayload = 0x00
	chunkEnd     = 0x01
	chunkReset   = 0x02
)

const (
	payloadHeadBytes = 5
	resetBytes       = 9
	// maxChunkBytes is the longest payload chunk that is written. One that is read may be of any length: it is never held as a whole.
	maxChunkBytes = 64 << 10
)

var errChunk = errors.New("localtransport: an unknown kind of chunk")

func resetChunk(code uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{chunkReset}, code)
}

// readChunk reads the head of a chunk: of a payload its length, of a reset its code.
func readChunk(r io.Reader) (kind byte, n uint64, err error) {
	var buf [resetBytes]byte
	if _, err := io.ReadFull(r, buf[:1]); err != nil {
		return 0, 0, err
	}
	switch buf[0] {
	case chunkPayload:
		_, err = io.ReadFull(r, buf[1:payloadHeadBytes])
		n = uint64(binary.LittleEndian.Uint32(buf[1:]))
	case chunkEnd:
	case chunkReset:
		_, err = io.ReadFull(r, buf[1:])
		n = binary.LittleEndian.Uint64(buf[1:])
	default:
		err = errChunk
	}
	return buf[0], n, err
}

// writeNow writes b only if that needs no waiting, and reports how much went.
func writeNow(nc *net.UnixConn, b []byte) (int, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var werr error
	if err := raw.Write(func(fd uintptr) bool {
		n, werr = syscall.Write(int(fd), b)
		return true
	}); err != nil {
		return 0, err
	}
	return max(n, 0), werr
}

// writeChunk writes a payload chunk and returns how much of p went, and whether it ended within the chunk.
func writeChunk(nc *net.UnixConn, p []byte) (n int, torn bool, err error) {
	head := binary.LittleEndian.AppendUint32([]byte{chunkPayload}, uint32(len(p)))
	bufs := net.Buffers{head, p}
	sent, err := bufs.WriteTo(nc)
	return max(0, int(sent)-payloadHeadBytes), err != nil && sent > 0, err
}

// socket is a connection with the one stream that it carries. Its two halves are over independently; when both are, it is closed.
type socket struct {
	link *socketLink
	nc   *net.UnixConn
	free func() // gives the stream's place back, once
	done chan struct{}

	writing sync.Mutex // held while a chunk is written
	torn    bool       // a chunk was cut off; guarded by writing

	mu       sync.Mutex
	begun    bool
	finished bool
	ended    error // why no more is written
	receipt  *transport.Receipt
	sendOver bool
	recvOver bool
	recvErr  error         // what a read returns from now on
	retired  chan struct{} // closed when both halves are over; nil while nobody waits

	left uint64 // of the chunk that is being read; the reader's
}

func newSocket(l *socketLink, nc *net.UnixConn, free func()) *socket {
	return &socket{link: l, nc: nc, free: free, done: make(chan struct{})}
}

// over notes halves that are over. s.mu is held.
func (s *socket) over(send, recv bool) {
	if send && !s.sendOver {
		s.sendOver = true
		close(s.done)
	}
	s.recvOver = s.recvOver || recv
	if s.sendOver && s.recvOver && s.free != nil {
		_ = s.nc.Close() // nothing is held back in it
		s.link.forget(s)
		s.free()
		s.free = nil
		if s.retired != nil {
			close(s.retired)
		}
	}
}

// Retired returns a channel that is closed when both halves are over.
func (s *socket) Retired() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired == nil {
		s.retired = make(chan struct{})
		if s.free == nil {
			close(s.retired)
		}
	}
	return s.retired
}

// endSend ends the sending half. s.mu is held.
func (s *socket) endSend(err error) {
	if s.ended == nil {
		s.ended = err
	}
	if s.receipt != nil {
		s.receipt.Settle(err)
	}
	s.over(true, false)
}

// lost ends the stream with the link.
func (s *socket) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recvErr == nil {
		s.recvErr = err
	}
	if !s.finished {
		s.endSend(err)
	}
	s.over(true, true)
}

// gone is what it means that the peer has ended a half without a word: that it wants no more of it, unless the link has ended.
func (s *socket) gone(otherwise error) error {
	if s.link.ending() {
		<-s.link.gone
		return s.link.Err()
	}
	return otherwise
}

func (s *socket) sendState() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	switch {
	case s.ended != nil:
		return s.ended
	case s.finished:
		return transport.ErrFinished
	}
	return nil
}

// socketSend is the sending half.
type socketSend struct{ *socket }

var (
	_ transport.SendStream = socketSend{}
	_ transport.Retiring   = socketSend{}
)

// OneWay says that the stream was found to be one-way, so that nothing will be written.
func (s socketSend) OneWay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.over(true, false)
}

func (s socketSend) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for {
		if err := s.sendState(); err != nil || n == len(p) {
			return n, err
		}
		m, torn, err := writeChunk(s.nc, p[n:min(len(p), n+maxChunkBytes)])
		n += m
		s.torn = torn
		if err == nil {
			continue
		}
		err = s.gone(&transport.StopError{Code: transport.CodeCanceled})
		s.mu.Lock()
		s.endSend(err) // after a Reset it changes nothing
		err = s.ended
		s.mu.Unlock()
		return n, err
	}
}

func (s socketSend) CloseWrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.sendState()
	if errors.Is(err, transport.ErrFinished) {
		return nil
	}
	if err != nil {
		return err
	}
	switch _, err := writeNow(s.nc, []byte{chunkEnd}); {
	case err == nil:
		s.finish()
	case errors.Is(err, syscall.EAGAIN):
		s.mu.Lock()
		s.finished = true
		s.mu.Unlock()
		if !s.link.spawn(s.finishLater) {
			s.lostEnd()
		}
	default:
		err = s.gone(&transport.StopError{Code: transport.CodeCanceled})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endSend(err)
		return s.ended
	}
	return nil
}

// lostEnd says of an end that will not be written that the link has ended first.
func (s socketSend) lostEnd() {
	<-s.link.gone
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSend(s.link.Err())
}

// finishLater writes the end behind what the peer has not read yet.
func (s socketSend) finishLater() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, err := s.nc.Write([]byte{chunkEnd}); err == nil {
		s.finish()
		return
	}
	err := s.gone(&transport.StopError{Code: transport.CodeCanceled})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSend(err)
}

// finish notes that the end is in the kernel's buffer, which is the peer's transport (weida-supplement §4.4).
func (s socketSend) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	if s.receipt != nil {
		s.receipt.Settle(nil)
	}
	s.over(true, false)
}

// Reset says it with a chunk where that can be written at once, and otherwise by ending the direction, which has no code.
func (s socketSend) Reset(code uint64) {
	s.mu.Lock()
	if s.sendOver {
		s.mu.Unlock()
		return
	}
	s.begun = true
	if s.ended == nil {
		s.ended = transport.ErrAbandoned
	}
	s.mu.Unlock()
	_ = s.nc.SetWriteDeadline(time.Unix(1, 0)) // wakes a writer; it fails only on what is closed
	s.writing.Lock()
	_ = s.nc.SetWriteDeadline(time.Time{})
	said := false
	if !s.torn {
		n, err := writeNow(s.nc, resetChunk(code))
		said = err == nil && n == resetBytes
	}
	if !said {
		_ = s.nc.CloseWrite() // it fails only on what is closed
	}
	s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSend(transport.ErrAbandoned)
}

func (s socketSend) Done() <-chan struct{} { return s.done }

func (s socketSend) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s socketSend) Receipt() (*transport.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receipt == nil && s.begun {
		return nil, transport.ErrNoReceipt
	}
	if s.receipt == nil {
		s.receipt = transport.NewReceipt(nil)
	}
	return s.receipt, nil
}

// socketReceive is the receiving half.
type socketReceive struct{ *socket }

var _ transport.ReceiveStream = socketReceive{}

func (r socketReceive) Read(p []byte) (int, error) {
	for {
		r.mu.Lock()
		err := r.recvErr
		r.mu.Unlock()
		if err != nil || len(p) == 0 {
			return 0, err
		}
		if r.left > 0 {
			n, _ := r.nc.Read(p[:min(uint64(len(p)), r.left)]) // without a byte it has failed
			r.left -= uint64(n)
			if n > 0 {
				return n, nil
			}
			return 0, r.fail()
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
}

// next reads the head of the next chunk.
func (r socketReceive) next() error {
	kind, n, err := readChunk(r.nc)
	switch {
	case errors.Is(err, errChunk):
		r.link.Close(transport.CodeProtocolViolation, errChunk.Error())
		return r.link.Err()
	case err != nil:
		return r.fail()
	case kind == chunkEnd:
		return r.end(io.EOF)
	case kind == chunkReset:
		return r.end(&transport.ResetError{Code: n})
	}
	r.left = n
	return nil
}

// fail is what it means that the stream broke off.
func (r socketReceive) fail() error {
	r.mu.Lock()
	err := r.recvErr
	r.mu.Unlock()
	if err != nil {
		return err // this side has stopped it
	}
	return r.end(r.gone(&transport.ResetError{Code: transport.CodeCanceled}))
}

// end ends the receiving half, and looks out for the end of the peer while this side still writes.
func (r socketReceive) end(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recvErr == nil {
		r.recvErr = err
		if !r.sendOver && errors.Is(err, io.EOF) {
			r.link.spawn(r.watch) // where the link has ended, so has the stream
		}
	}
	r.over(false, true)
	return r.recvErr
}

func (r socketReceive) Stop(code uint64) {
	r.mu.Lock()
	if r.recvErr != nil {
		r.mu.Unlock()
		return
	}
	r.recvErr = transport.ErrAbandoned
	r.over(false, true)
	live := !r.sendOver
	r.mu.Unlock()
	if live {
		// What is in the buffer is taken out, so that a peer that waits for room in it sees that nobody reads.
		_ = r.nc.CloseRead()
		_, _ = io.Copy(io.Discard, r.nc)
	}
}

// watch discards what comes until the peer has closed the connection, which is the end of both halves.
func (s *socket) watch() {
	_, err := io.Copy(io.Discard, s.nc)
	stopped := s.gone(&transport.StopError{Code: transport.CodeCanceled})
	// The peer may have read the end and closed before the one who writes it has noted that it went.
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sendOver || errors.Is(err, syscall.ECONNRESET) && s.ended == nil {
		s.endSend(stopped) // it was closed before all of it was read
	}
	s.over(true, true)
}

// begin takes the head of the first chunk, which was read before anybody reads.
func (s *socket) begin(kind byte, n uint64) {
	if kind == chunkPayload {
		s.left = n
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recvErr == nil {
		s.recvErr = io.EOF
		if kind == chunkReset {
			s.recvErr = &transport.ResetError{Code: n}
		}
	}
	s.over(false, true)
}
