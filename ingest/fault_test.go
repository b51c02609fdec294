package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// holdSyncs makes every sync of the active segment wait until the gate is released.
func (r *rig) holdSyncs() *vfstest.Gate {
	p := r.dial()
	p.send(push("opens the segment"))
	p.want("Ack")
	gate := vfstest.NewGate()
	r.disk.Add(vfstest.Fault{Kinds: vfstest.SyncData, Name: "shard_00/seg_00000001-*", Sticky: true, Gate: gate})
	r.t.Cleanup(gate.Release)
	return gate
}

func (r *rig) syncs() uint64 { return r.log.Shards()[0].Stats().Syncs }

// wantSilence checks that there is no reply yet: a health check on a second connection
// goes all the way through the server meanwhile.
func (r *rig) wantSilence(p *peer) {
	r.t.Helper()
	r.dial().wantOpen()
	raw, err := p.nc.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		if n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT); err != unix.EAGAIN {
			r.t.Errorf("a reply came too early: %d bytes, %v", n, err)
		}
		return true
	})
	if err != nil {
		r.t.Error(err)
	}
}

func TestDurableAckWaitsForTheSync(t *testing.T) {
	for _, f := range [][]byte{push("x"), tracked("x"), batchOf("x", "y"), frame.Append(nil, frame.Push, 2, []byte("x"))} {
		t.Run(frame.Type(f[5]).String(), func(t *testing.T) {
			r := start(t, Config{}, wab.Options{})
			gate := r.holdSyncs()
			p := r.dial()
			p.send(f)
			<-gate.Reached()
			r.wantSilence(p)
			gate.Release()
			if h, _ := p.read(); h.Type != frame.Type(f[5]).Reply() {
				t.Errorf("reply %v", h.Type)
			}
		})
	}
}

// Buffered records of another connection are acked while a sync hangs.
func TestBufferedAckDoesNotWaitForASync(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	gate := r.holdSyncs()
	p := r.dial()
	p.send(push("durable"))
	<-gate.Reached()
	q := r.dial()
	q.send(pushBuffered("buffered"))
	q.want("Ack")
	r.wantSilence(p)
	gate.Release()
	p.want("Ack")
}

// While one sync runs a connection is read ahead of, so that what it sends meanwhile
// shares one group commit.
func TestOneConnectionFillsAGroupCommit(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	gate := r.holdSyncs()
	p := r.dial()
	second := push("second")
	p.send(push("first"), second[:5]) // the start of the second shows that more is coming
	<-gate.Reached()
	before := r.syncs()
	p.send(second[5:])
	const n = 1000
	for i := range n {
		p.send(push(fmt.Sprint(i)))
	}
	gate.Release()
	p.want(repeat("Ack", n+2)...)
	if got := r.syncs() - before; got > 5 {
		t.Errorf("%d syncs for %d records of one connection", got, n)
	}
}

// No more than the window is read ahead of a sync that hangs.
func TestWindowBoundsReadAhead(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		size int
		most int
	}{
		{"records", Config{PipelineRecords: 10}, 10, 10},
		{"bytes", Config{PipelineBytes: 10_000}, 1000, 11},
		{"budget", Config{MaxPayloadBytes: 1000, MemoryBytes: firstSlabBytes}, 1000, 2 * firstSlabBytes / 1000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, tt.cfg, wab.Options{})
			gate := r.holdSyncs()
			before := r.srv.Stats().Frames[frame.Push]
			p := r.dial()
			const n = 500
			one := push(strings.Repeat("x", tt.size))
			sent := make(chan error, 1)
			go func() {
				_, err := p.nc.Write(bytes.Repeat(one, n))
				sent <- err
			}()
			<-gate.Reached()
			r.wantSilence(p)
			if got := int(r.srv.Stats().Frames[frame.Push] - before); got == 0 || got > tt.most {
				t.Errorf("%d frames were read ahead, want 1 to %d", got, tt.most)
			}
			gate.Release()
			p.want(repeat("Ack", n)...)
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFailedSyncIsNotAcked(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	p.send(push("good"))
	p.want("Ack")
	r.disk.Add(vfstest.Fault{Kinds: vfstest.SyncData, Name: "shard_00/seg_00000001-*", Sticky: true, Err: errDisk, Drop: true})
	p.send(push("bad"))
	p.want("Nack InternalError")
	p.send(push("good again"))
	p.want("Ack")
	p.send(pushBuffered("and on"), batchOf("a", "b"))
	p.want("Ack", "AckBatch 03")
	if st := r.srv.Stats(); st.FailedRecords != 1 || st.AckedRecords != 5 || st.Nacks[frame.InternalError] != 1 {
		t.Errorf("stats %+v", st)
	}
}

// Every record whose bit is set is on stable storage after a power cut, whatever write or
// sync fails in the middle of the batch.
func TestBatchBitsAreNeverFalse(t *testing.T) {
	const n = 30
	mixed := 0
	for _, kind := range []vfstest.Kind{vfstest.WriteAt, vfstest.SyncData} {
		for at := 0; ; at++ {
			r := start(t, Config{}, wab.Options{GroupRecords: 4})
			p := r.dial()
			p.send(push("first"))
			p.want("Ack")
			r.disk.Add(vfstest.Fault{Kinds: kind, Name: "shard_00/seg_*", At: at, Err: errDisk, Drop: kind == vfstest.SyncData, Short: 3})
			sent := make([]string, n)
			for i := range sent {
				sent[i] = fmt.Sprintf("record %d of a batch", i)
			}
			p.send(batchOf(sent...))
			h, payload := p.read()
			set := map[string]bool{}
			if h.Type == frame.AckBatch {
				bits, err := frame.ParseAckBatch(payload, n)
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					if bits.Get(i) {
						set[sent[i]] = true
					}
				}
			} else if got := name(h, payload); got != "Nack InternalError" {
				t.Fatalf("reply %s", got)
			}
			fired := len(r.disk.Fired()) > 0
			if !fired && len(set) != n {
				t.Errorf("%v %d: nothing failed, but only %d of %d bits are set", kind, at, len(set), n)
			}
			if len(set) > 0 && len(set) < n {
				mixed++
			}
			wantOnDisk(t, r, set)
			p.wantOpen()
			r.shutdown()
			if !fired {
				break
			}
		}
	}
	if mixed == 0 {
		t.Error("no batch failed in part: the test does not reach what it is for")
	}
}

// wantOnDisk checks that records are found after a power cut at this moment.
func wantOnDisk(t *testing.T, r *rig, records map[string]bool) {
	t.Helper()
	image := r.inner.Image(vfstest.Choice{})
	l, err := wab.Open("", wab.Options{FS: image, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	found := map[string]bool{}
	for _, s := range (&rig{t: t, log: l}).records() {
		found[s] = true
	}
	for s := range records {
		if !found[s] {
			t.Errorf("%q was acked and is not on the disk", s)
		}
	}
}

func TestFullLogNacksAndGoesOn(t *testing.T) {
	r := start(t, Config{}, wab.Options{SegmentBytes: 64 << 10, MaxBytes: 1 << 20})
	p := r.dial()
	big := strings.Repeat("x", 200<<10)
	full := false
	for range 20 {
		p.send(push(big))
		if name(p.read()) != "Ack" {
			full = true
			break
		}
	}
	if !full {
		t.Fatal("the cap was never reached")
	}
	// The connection is in step: the frame was read whole.
	p.send(push(big), tracked(big), batchOf(big, big), frame.AppendHealthCheck(nil))
	p.want("Nack InternalError", "Nack InternalError", "Nack InternalError", "HealthCheckResponse")
}

func TestClosedLogNacks(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	p.wantOpen()
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	p.send(push("x"), batchOf("y", "z"))
	p.want("Nack InternalError", "Nack InternalError")
	p.wantOpen()
}

// A peer that never reads is cut off; its records are in the log, and others do
// not notice.
func TestPeerThatNeverReadsIsCutOff(t *testing.T) {
	r := start(t, Config{WriteTimeout: 20 * time.Millisecond}, wab.Options{})
	p := r.dial()
	if err := p.nc.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	frames := bytes.Repeat(frame.AppendHealthCheck(nil), 1000)
	q := r.dial()
	for {
		if _, err := p.nc.Write(frames); err != nil {
			if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				t.Fatalf("write: %v", err)
			}
			break
		}
		q.send(push("x"))
		q.want("Ack")
	}
	if got := r.srv.Stats().WriteTimeouts; got != 1 {
		t.Errorf("%d write timeouts, want 1", got)
	}
	q.wantOpen()
}

// The deadline is one for the frame: bytes that trickle in do not move it.
func TestDribblingPeerIsCutOff(t *testing.T) {
	r := start(t, Config{FrameTimeout: 50 * time.Millisecond}, wab.Options{})
	p := r.dial()
	p.send(push("whole"))
	p.want("Ack")
	p.send(frame.Append(nil, frame.Push, record.Durable, make([]byte, frame.MaxPayloadBytes))[:frame.HeaderLen])
	for {
		if _, err := p.nc.Write([]byte{0}); err != nil {
			break
		}
	}
	if rest, _ := io.ReadAll(p.nc); len(rest) != 0 {
		t.Errorf("%d bytes came, want silence", len(rest))
	}
	if got := r.srv.Stats().FrameTimeouts; got != 1 {
		t.Errorf("%d frame timeouts, want 1", got)
	}
}

// What came whole is answered before the silent end, and an idle connection has no
// limit.
func TestHalfAFrameThenNothing(t *testing.T) {
	r := start(t, Config{FrameTimeout: 30 * time.Millisecond}, wab.Options{})
	idle := r.dial()
	f := push("in two parts")
	idle.send(f[:5])
	idle.send(f[5:])
	idle.want("Ack")
	for _, cut := range []int{1, frame.HeaderLen, len(f) - 1} {
		p := r.dial()
		p.send(push("whole"), f[:cut])
		p.want("Ack")
		p.wantEnd()
	}
	idle.wantOpen() // longer idle than three frame timeouts
}

// While the window is full nothing is read, and that time is not held against the frame
// that has begun.
func TestFullWindowStopsTheClock(t *testing.T) {
	r := start(t, Config{FrameTimeout: 300 * time.Millisecond, PipelineRecords: 1}, wab.Options{})
	gate := r.holdSyncs()
	p := r.dial()
	f := push("frame")
	p.send(f, f[:5])
	<-gate.Reached()
	r.dial().wantOpen() // meanwhile the reader has come to wait for the rest
	p.send(f[5:8])      // still not whole, and the window is full
	for range 2 {
		q := r.dial()
		q.send(f[:5])
		q.wantEnd() // a frame timeout has passed
	}
	gate.Release()
	p.want("Ack")
	p.send(f[8:])
	p.want("Ack")
}

func TestConnectionLimit(t *testing.T) {
	r := start(t, Config{MaxConnections: 2}, wab.Options{})
	a, b := r.dial(), r.dial()
	a.wantOpen()
	b.wantOpen()
	c := r.dial()
	c.want("Nack InternalError")
	c.wantEnd()
	a.nc.CloseWrite()
	a.wantEnd() // so the server is done with it
	d := r.dial()
	d.wantOpen()
	b.wantOpen()
	if st := r.srv.Stats(); st.RefusedLimit != 1 || st.Accepted != 3 || st.Open != 2 {
		t.Errorf("stats %+v", st)
	}
}

// A frame that finds no room in the budget is read to its end and nacked; the
// connection goes on, and small frames always have room.
func TestBudgetIsSpent(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	r.srv.mem.take(r.srv.mem.limit)
	p := r.dial()
	big := strings.Repeat("x", 300<<10)
	p.send(push("small"), push(big), batchOf(big, "y"), frame.Append(nil, frame.HealthCheck, record.Durable, []byte(big)), tracked("small, too"))
	p.want("Ack", "Nack InternalError", "Nack InternalError", "Nack InternalError", "AckTracked")
	bad := push(big)
	bad[len(bad)-1] ^= 1
	p.send(bad, push("behind"))
	p.want("Nack BadPayloadCrc")
	p.nc.CloseWrite()
	p.wantEnd()
	r.srv.mem.give(r.srv.mem.limit)
	p = r.dial()
	p.send(push(big))
	p.want("Ack")
	if got := r.records(); !slices.Equal(got, []string{"small", "small, too", big}) {
		t.Errorf("%d records", len(got))
	}
}

// A half frame that is thrown away has a deadline like any other.
func TestSkippedFrameHasADeadline(t *testing.T) {
	r := start(t, Config{FrameTimeout: 30 * time.Millisecond}, wab.Options{})
	r.srv.mem.take(r.srv.mem.limit)
	defer r.srv.mem.give(r.srv.mem.limit)
	p := r.dial()
	f := push(strings.Repeat("x", 300<<10))
	p.send(f[:len(f)-1])
	p.wantEnd()
}

// What a peer had sent before a shutdown is answered by it, read or not, however
// long the sync takes; then the connection ends.
func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	gate := r.holdSyncs()
	p, idle := r.dial(), r.dial()
	idle.wantOpen()
	half := push("not whole")
	p.send(push("a"), tracked("b"), batchOf("c", "d"), half[:len(half)-1])
	<-gate.Reached()
	down := make(chan struct{})
	go func() {
		defer close(down)
		r.shutdown()
	}()
	idle.wantEnd() // so the shutdown has begun
	gate.Release()
	p.want("Ack", "AckTracked", "AckBatch 03")
	p.wantEnd()
	<-down
	if got := r.records(); !slices.Equal(got, []string{"opens the segment", "a", "b", "c", "d"}) {
		t.Errorf("log holds %q", got)
	}
}

// Frames that are still in the socket when a shutdown begins are answered, too: the reader waits
// for the sync of the first one and has not looked at the others.
func TestShutdownAnswersWhatIsInTheSocket(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	gate := r.holdSyncs()
	p, idle := r.dial(), r.dial()
	idle.wantOpen()
	p.send(push("first"))
	<-gate.Reached()
	p.send(bytes.Repeat(push("waits in the socket"), 100))
	down := make(chan struct{})
	go func() {
		defer close(down)
		r.shutdown()
	}()
	idle.wantEnd()
	gate.Release()
	p.want(repeat("Ack", 101)...)
	p.wantEnd()
	<-down
}

// A shutdown whose time is over cuts connections off and says so; the tickets are
// still waited for.
func TestShutdownHonoursItsDeadline(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	gate := r.holdSyncs()
	p := r.dial()
	p.send(push("a"))
	<-gate.Reached()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.srv.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v", err)
	}
	if rest, _ := io.ReadAll(p.nc); len(rest) != 0 {
		t.Errorf("%d bytes", len(rest))
	}
	gate.Release()
	r.shutdown()
}

func TestEndOfTheServeContextStops(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	srv, err := New(Config{Path: r.cfg.Path + "2"}, []Appender{r.log.Writable()[0]})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx) }()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}

// A peer that ends its side after the last frame gets every reply.
func TestHalfClosedPeerGetsItsReplies(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	p.send(bytes.Repeat(push("x"), 700))
	p.nc.CloseWrite()
	p.want(repeat("Ack", 700)...)
	p.wantEnd()
}

// Replies of earlier frames come before the Nack that closes, though their sync
// hangs.
func TestClosingNackComesLast(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	gate := r.holdSyncs()
	p := r.dial()
	p.send(push("a"), push("b"), []byte("garbage that is no frame"))
	<-gate.Reached()
	r.wantSilence(p)
	gate.Release()
	p.want("Ack", "Ack", "Nack BadMagic")
	p.nc.CloseWrite()
	p.wantEnd()
}

// Peers that vanish with frames in flight leave nothing behind, and what they sent whole
// is in the log or not, but never in part.
func TestVanishingPeers(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	for i := range 50 {
		p := r.dial()
		f := bytes.Join([][]byte{bytes.Repeat(push("whole"), i*20), tracked("whole"), batchOf("whole", "whole")}, nil)
		p.send(f[:len(f)-i%7])
		p.nc.Close()
	}
	r.dial().wantOpen()
	r.shutdown()
	for _, s := range r.records() {
		if s != "whole" {
			t.Fatalf("the log holds %q", s)
		}
	}
}

// Garbage of every kind ends in a Nack or in silence, and costs nobody else
// anything.
func TestHostileStreams(t *testing.T) {
	r := start(t, Config{FrameTimeout: 20 * time.Millisecond}, wab.Options{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	good := r.dial()
	for range 200 {
		p := r.dial()
		stream := slices.Concat(push("a"), batchOf("b", "c"), tracked("d"), frame.AppendHealthCheck(nil))
		for range 1 + rng.IntN(4) {
			switch i := rng.IntN(len(stream)); rng.IntN(4) {
			case 0:
				stream[i] ^= byte(1 << rng.IntN(8))
			case 1:
				stream = stream[:i+1]
			case 2:
				stream = slices.Insert(stream, i, byte(rng.Uint32()))
			case 3:
				stream = slices.Delete(stream, i, min(len(stream), i+1+rng.IntN(8)))
				if len(stream) == 0 {
					stream = []byte{0}
				}
			}
		}
		// The peer may be gone before all is written: that is a right answer.
		_, _ = p.nc.Write(stream)
		p.nc.CloseWrite()
		if _, err := io.ReadAll(p.nc); err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Fatalf("read: %v", err)
		}
		p.nc.Close()
		good.wantOpen()
	}
}

// When descriptors run out accepting rests and goes on by itself.
func TestAcceptSurvivesWantOfDescriptors(t *testing.T) {
	failed := make(chan error, 100)
	r := start(t, Config{Observer: Observer{AcceptFailed: func(err error) { failed <- err }}}, wab.Options{})
	r.dial().wantOpen() // everything that opens files lazily has done so
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "client")
	defer file.Close()
	limit := old
	limit.Cur = 3 // every number below is taken
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: r.cfg.Path})
	if err != nil {
		restore()
		t.Fatal(err)
	}
	first := <-failed
	restore()
	if !errors.Is(first, unix.EMFILE) {
		t.Errorf("accept failed with %v, want EMFILE", first)
	}
	if _, err := file.Write(frame.AppendHealthCheck(nil)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 20)
	if _, err := io.ReadFull(file, got); err != nil || !bytes.Equal(got, frame.AppendHealthCheckResponse(nil)) {
		t.Errorf("%x, %v", got, err)
	}
	if got := r.srv.Stats().AcceptErrors; got == 0 {
		t.Error("no accept error is counted")
	}
}

func TestAcceptPauseGrowsAndIsBounded(t *testing.T) {
	var got []time.Duration
	for p := nextPause(0); len(got) < 9; p = nextPause(p) {
		got = append(got, p)
	}
	ms := time.Millisecond
	want := []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1000 * ms}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}
