package weida

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// reportTable is which reports were ordered on a link and have not ended.
type reportTable struct {
	mu    sync.Mutex
	last  uint64
	byID  map[uint64]*Cursors
	ended bool
}

// order allocates an id for a report.
func (t *reportTable) order(o ReportOrder) *Cursors {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	c := &Cursors{table: t, id: t.last, levels: slices.Clone(o.Levels), offsets: make(map[Level]uint64, len(o.Levels)), changed: make(chan struct{}, 1), over: make(chan struct{})}
	if t.ended {
		close(c.over)
		return c
	}
	if t.byID == nil {
		t.byID = make(map[uint64]*Cursors)
	}
	t.byID[c.id] = c
	return c
}

// claim takes the report with an id out of the table, for the one stream that brings it.
func (t *reportTable) claim(id uint64) *Cursors {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[id]
	delete(t.byID, id)
	return c
}

// end ends every report that has not begun; the streams of the others end by themselves.
func (t *reportTable) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, c := range t.byID {
		close(c.over)
	}
	t.byID = nil
}

// Cursors is what the receiver of a transfer reports on it: for each level how many bytes of the payload, from its beginning, have reached it. A
// level that nobody reports stays absent, and nothing tells why. Its methods may be called by several goroutines at once.
type Cursors struct {
	table   *reportTable
	id      uint64
	levels  []Level
	changed chan struct{} // holds one token while a change was not seen
	over    chan struct{} // closed when no more will come

	mu      sync.Mutex
	offsets map[Level]uint64
}

// ErrReportEnded is returned by Changed when no more will come: the receiver has ended the report, or the link is gone.
var ErrReportEnded = errors.New("report ended")

// Snapshot returns the offsets of the levels reported so far. The map is the caller's.
func (c *Cursors) Snapshot() map[Level]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.offsets)
}

// Offset returns how far a level has come, and whether it was reported.
func (c *Cursors) Offset(l Level) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.offsets[l]
	return o, ok
}

// Changed waits for news since the last call. It returns nil for news, ErrReportEnded when there will be none, and ctx's error. A peer
// that never reports is silent until the link ends, so ctx should have a deadline.
func (c *Cursors) Changed(ctx context.Context) error {
	select {
	case <-c.changed:
		return nil
	default:
	}
	select {
	case <-c.changed:
		return nil
	case <-c.over:
		select {
		case <-c.changed: // the last news came before the end
			return nil
		default:
			return ErrReportEnded
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wait waits until a level has come to an offset. Its errors are Changed's.
func (c *Cursors) Wait(ctx context.Context, l Level, offset uint64) error {
	for {
		if o, ok := c.Offset(l); ok && o >= offset {
			return nil
		}
		if err := c.Changed(ctx); err != nil {
			return err
		}
	}
}

// Close says that nobody looks any more. A report that comes later is turned away. It always returns nil.
func (c *Cursors) Close() error {
	if c.table.claim(c.id) != nil {
		close(c.over)
	}
	return nil
}

// note takes a record. Levels that were not ordered, and offsets behind what is known, change nothing.
func (c *Cursors) note(r wire.Record) {
	if !slices.Contains(c.levels, r.Level) {
		return
	}
	c.mu.Lock()
	known, ok := c.offsets[r.Level]
	news := !ok || r.Offset > known
	if news {
		c.offsets[r.Level] = r.Offset
	}
	c.mu.Unlock()
	if news {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
}

// takeCursor reads a report (§6.7). A report that nobody ordered, or nobody wants any more, is turned away and the link lives on.
func (c *conn) takeCursor(s transport.ReceiveStream, header []byte) error {
	id, err := wire.ParseCursor(header)
	if err != nil {
		return err
	}
	cursors := c.reports.claim(id)
	if cursors == nil {
		s.Stop(transport.CodeCanceled)
		return nil
	}
	defer close(cursors.over)
	var buf [8 * wire.MaxRecordBytes]byte
	n := 0
	for {
		m, err := s.Read(buf[n:])
		n += m
		used := 0
		for {
			r, size, perr := wire.ParseRecord(buf[used:n])
			if errors.Is(perr, wire.ErrIncomplete) {
				break
			}
			if perr != nil {
				return perr
			}
			cursors.note(r)
			used += size
		}
		n = copy(buf[:], buf[used:n])
		if errors.Is(err, io.EOF) && n == 0 {
			return nil
		}
		if err != nil {
			return endOfFrame(err) // a record that is cut is a violation, a reset is not
		}
	}
}

// Reporter tells a sender how far its transfer has come, as far as it has asked. Nothing waits for it, and nothing tells whether it arrived. It must
// be finished. Its methods may be called by several goroutines at once.
type Reporter struct {
	conn  *conn
	id    uint64
	order ReportOrder
	wake  chan struct{} // holds one token while there is news for the goroutine

	mu       sync.Mutex
	offsets  map[Level]uint64
	started  bool
	finished bool
	ended    bool // nothing is written any more
}

// unwritten counts the reports that were finished and whose end is not written yet, for a drain to wait for.
type unwritten struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n becomes 0; nil while nobody waits
}

func (u *unwritten) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n += n; u.n == 0 && u.none != nil {
		close(u.none)
		u.none = nil
	}
}

// wait waits until there are none, or ctx ends.
func (u *unwritten) wait(ctx context.Context) {
	u.mu.Lock()
	if u.n == 0 {
		u.mu.Unlock()
		return
	}
	if u.none == nil {
		u.none = make(chan struct{})
	}
	none := u.none
	u.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// Reporter returns the reporter for what the sender of the transfer has ordered, and nil if it has ordered nothing. Each call returns the same.
func (t *IncomingTransfer) Reporter() *Reporter {
	if !t.reportID.Set || len(t.meta.Report.Levels) == 0 {
		return nil
	}
	r := &Reporter{conn: t.conn, id: t.reportID.Value, order: t.meta.Report, wake: make(chan struct{}, 1), offsets: make(map[Level]uint64)}
	if !t.reporter.CompareAndSwap(nil, r) {
		r = t.reporter.Load()
	}
	return r
}

// Levels returns what was ordered.
func (r *Reporter) Levels() []Level { return slices.Clone(r.order.Levels) }

// FinalOnly reports whether the sender wants one record for each level, at the end; Report then only remembers.
func (r *Reporter) FinalOnly() bool { return r.order.FinalOnly }

// Report says that the payload has reached a level up to an offset, in bytes from its beginning. Offsets behind what was said, and levels that
// nobody ordered, are ignored. It does not wait.
func (r *Reporter) Report(l Level, offset uint64) {
	if !slices.Contains(r.order.Levels, l) {
		return
	}
	r.mu.Lock()
	known, ok := r.offsets[l]
	news := !r.finished && (!ok || offset > known)
	if news {
		r.offsets[l] = offset
	}
	r.mu.Unlock()
	if news && !r.order.FinalOnly {
		r.signal()
	}
}

// Finish sends what was not sent and ends the report. It does not wait. The sender is told of the end also if nothing was reported: to a queue it says that the message
// was not processed and may go to the next consumer.
func (r *Reporter) Finish() {
	r.mu.Lock()
	news := !r.finished
	r.finished = true
	if news && !r.ended {
		r.conn.finishing.add(1)
	}
	r.mu.Unlock()
	if news {
		r.signal()
	}
}

// signal wakes the goroutine that writes, and starts it for the first news. Without news there is no stream.
func (r *Reporter) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
	r.mu.Lock()
	start := !r.started
	r.started = true
	r.mu.Unlock()
	if start && r.conn.writing.enter(r) {
		r.conn.spawnReport(r)
	}
}

// maxWaitingReports bounds the reports of a link that wait for a place to be written. One more is not made.
const maxWaitingReports = 1 << 16

// reportPlaces bounds the reports of a link that are being written, each by a goroutine, at Limits.MaxConcurrentUniStreams: a peer that orders reports and takes none of their
// streams gets no more of them than it may have streams open itself. Those beyond wait in their order, without a goroutine.
type reportPlaces struct {
	mu      sync.Mutex
	most    int
	taken   int
	waiting []*Reporter
}

// enter takes a place for a report and reports whether it may begin now. Otherwise it waits, or it is not made.
func (p *reportPlaces) enter(r *Reporter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken < p.most {
		p.taken++
		return true
	}
	if len(p.waiting) < maxWaitingReports {
		p.waiting = append(p.waiting, r)
		return false
	}
	r.end()
	return false
}

// leave gives a place back, or returns the report that has it now.
func (p *reportPlaces) leave() *Reporter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.taken--
		return nil
	}
	next := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	return next
}

// spawnReport writes a report that has a place, and then the next that waits for it.
func (c *conn) spawnReport(r *Reporter) {
	if c.rt.spawn(func() {
		for next := r; next != nil; next = c.writing.leave() {
			next.run()
		}
	}) {
		return
	}
	for next := r; next != nil; next = c.writing.leave() { // the runtime is closed
		next.end()
	}
}

// run writes the report until it is finished or the link has ended. Failures are nobody's business (weida-supplement §9).
func (r *Reporter) run() {
	defer r.end()
	s, err := r.conn.link.OpenUni(context.Background())
	if err != nil {
		return
	}
	receipt, err := s.Receipt()
	if err == nil {
		defer r.conn.parking.Park(receipt) // so that a drain waits until the end of the report has arrived
	}
	frame, err := wire.AppendCursor(nil, r.id, r.conn.agreed.SendMaxHeaderBytes)
	if err != nil {
		s.Reset(transport.CodeInternal)
		return
	}
	opts := &r.conn.rt.opts
	sent := make(map[Level]uint64, len(r.order.Levels))
	pace := time.NewTimer(0) // the first news is sent at once
	defer pace.Stop()
	for paced := true; ; {
		select {
		case <-r.wake:
		case <-pace.C:
			paced = false
		case <-r.conn.link.Done():
			return
		}
		records, finished, far := r.news(sent, uint64(opts.ReportBytes))
		if !finished && (records == nil || paced && !far) {
			continue
		}
		if frame, err = r.write(s, frame, records, sent); err != nil {
			return
		}
		if finished {
			_ = s.CloseWrite() // see above
			return
		}
		paced = true
		pace.Reset(opts.ReportInterval)
	}
}

// end notes that nothing is written any more.
func (r *Reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.finished {
		r.conn.finishing.add(-1)
	}
}

// news returns what was not sent, in order of the levels, whether that is all, and whether a level has moved by at least step bytes.
func (r *Reporter) news(sent map[Level]uint64, step uint64) (records []wire.Record, finished, far bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.order.Levels {
		offset, ok := r.offsets[l]
		before, was := sent[l]
		if !ok || was && before == offset {
			continue
		}
		records = append(records, wire.Record{Level: l, Offset: offset})
		far = far || offset-before >= step
	}
	return records, r.finished, far
}

// write writes records behind what of the head was not written yet.
func (r *Reporter) write(s transport.SendStream, frame []byte, records []wire.Record, sent map[Level]uint64) (rest []byte, err error) {
	for _, rec := range records {
		sent[rec.Level] = rec.Offset
		// A level or an offset that no record can hold stays absent.
		if b, err := wire.AppendRecord(frame, rec); err == nil {
			frame = b
		}
	}
	_, err = s.Write(frame)
	return frame[:0], err
}
