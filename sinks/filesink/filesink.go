// Package filesink delivers records as lines of a file.
//
// A record is delivered once its line is on stable storage under the file's name. Records may
// appear twice, as with every sink: after a failed write or a crash the batch
// comes again. A full file, by size or age, is renamed to the same name with .1, .2 and
// so on, counting up with time; the sink removes none of them. A file on which a write or sync
// failed is renamed the same way and never written again. The torn line that a
// crash may leave at the end is moved to a file of its own (.torn.1, …).
//
// A lock file (.lock) keeps a second sink away from the same file.
package filesink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/vfs"
)

// The values of Options.Format.
const (
	FormatJSONL = "jsonl"
	FormatLines = "lines"
)

const (
	// maxGroupBytes is from where on no more batches join those that share one sync.
	maxGroupBytes = 16 << 20
	// maxPooledBytes is the largest buffer that is kept for the next batch.
	maxPooledBytes = 8 << 20
	// closeWait bounds how long Close waits for a disk that does not answer.
	closeWait = 5 * time.Second
)

// Options says where and how to write. FS and Path are required.
type Options struct {
	// FS is the folder of Path. The sink does not close it.
	FS vfs.FS `toml:"-"`
	// Path is the file to write; only its last element is used below FS [sink.file.path].
	Path string `toml:"path"`
	// Format is jsonl (default: one JSON object a line, with id, segment, index, appended
	// and payload or payload_base64) or lines (the record itself) [sink.file.format].
	Format string `toml:"format"`
	// Base64 makes jsonl write every payload as payload_base64, not only those that are not UTF-8 [sink.file.base64].
	Base64 bool `toml:"base64"`
	// RotateBytes is the size that a file does not exceed, unless by a group of batches
	// that is larger alone; 0 (default) is no limit [sink.file.rotate_bytes].
	RotateBytes int64 `toml:"rotate_bytes"`
	// RotateAge is how long a file that holds lines is written, since its first line or since it was
	// opened; 0 (default) is no limit [sink.file.rotate_age].
	RotateAge time.Duration `toml:"rotate_age"`
}

// Sink is the file sink. It is safe for use by several goroutines.
type Sink struct {
	opts    Options
	lock    io.Closer
	buffers sync.Pool // *[]byte
	jobs    chan job
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed when the writer is done
	once    sync.Once
	err     error // of the writer's end; read after stopped
}

var _ sinks.Sink = (*Sink)(nil)

// job is a batch's lines on their way to the writer, which owns them from then on.
type job struct {
	lines *[]byte
	done  chan<- error // has room for one
}

var errClosed = errors.New("filesink: the sink is closed")

// New locks and opens the file, repairs its end, and returns the sink. Where the file cannot be used
// now for a reason that may pass (no space, an input or output error), that is left to Deliver.
func New(o Options) (*Sink, error) {
	name := filepath.Base(o.Path)
	if err := check(&o, name); err != nil {
		return nil, err
	}
	lock, err := o.FS.Lock(name + ".lock")
	if err != nil {
		return nil, fmt.Errorf("sink.file.path: %w", err)
	}
	out := &output{fs: o.FS, name: name}
	if err := out.open(); errors.Is(err, vfs.ErrNotRegular) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("sink.file.path: %w", err), lock.Close())
	}
	s := &Sink{opts: o, lock: lock, jobs: make(chan job), stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(s.stopped)
		s.err = s.write(out)
	}()
	return s, nil
}

func check(o *Options, name string) error {
	var all []error
	if o.FS == nil {
		all = append(all, errors.New("sink.file: no file system is given"))
	}
	if o.Path == "" || name == "." || name == ".." || name == string(filepath.Separator) {
		all = append(all, fmt.Errorf("sink.file.path: %q names no file", o.Path))
	}
	if o.Format == "" {
		o.Format = FormatJSONL
	}
	if o.Format != FormatJSONL && o.Format != FormatLines {
		all = append(all, fmt.Errorf("sink.file.format: %q is none of jsonl, lines", o.Format))
	}
	if o.Base64 && o.Format == FormatLines {
		all = append(all, errors.New("sink.file.base64: has no meaning with format lines"))
	}
	if o.RotateBytes < 0 {
		all = append(all, fmt.Errorf("sink.file.rotate_bytes: %d is negative", o.RotateBytes))
	}
	if o.RotateAge < 0 {
		all = append(all, fmt.Errorf("sink.file.rotate_age: %v is negative", o.RotateAge))
	}
	return errors.Join(all...)
}

// Deliver writes the records of b and returns when they are on stable storage. See sinks.Sink.
func (s *Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	out := make([]sinks.Outcome, len(b.Records))
	lines, ok := s.buffers.Get().(*[]byte)
	if !ok {
		lines = new([]byte)
	}
	*lines = s.encode((*lines)[:0], b, out)
	o := sinks.Outcome{Verdict: sinks.Delivered}
	if err := s.submit(ctx, lines); err != nil {
		o = sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason(err.Error())}
	}
	for i := range out {
		if out[i].Verdict == sinks.Invalid {
			out[i] = o
		}
	}
	return out
}

// encode appends the lines of b, and puts a Reject into out for each record that is none.
func (s *Sink) encode(dst []byte, b sinks.Batch, out []sinks.Outcome) []byte {
	for i := range b.Records {
		r := &b.Records[i]
		switch {
		case s.opts.Format == FormatJSONL:
			dst = AppendLine(dst, r, s.opts.Base64)
		case isLine(r.Payload):
			dst = append(append(dst, r.Payload...), '\n')
		default:
			out[i] = sinks.Outcome{
				Verdict: sinks.Reject, Isolated: true,
				Reason: "the record holds a line feed or a carriage return, which format lines cannot carry",
			}
		}
	}
	return dst
}

// submit hands lines to the writer and waits for it, or for the end of ctx.
func (s *Sink) submit(ctx context.Context, lines *[]byte) error {
	if err := ctx.Err(); err != nil || len(*lines) == 0 {
		s.giveBack(lines)
		return err
	}
	done := make(chan error, 1)
	select {
	case s.jobs <- job{lines, done}:
	case <-ctx.Done():
		s.giveBack(lines)
		return ctx.Err()
	case <-s.stop:
		return errClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Sink) giveBack(lines *[]byte) {
	if cap(*lines) <= maxPooledBytes {
		s.buffers.Put(lines)
	}
}

// Close waits for what is being written, and closes the file. Where the disk does
// not answer for five seconds it gives up waiting and says so. It may be called again.
func (s *Sink) Close() error {
	s.once.Do(func() { close(s.stop) })
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-s.stopped:
		return s.err
	case <-timer.C:
		return fmt.Errorf("filesink: close %s: the disk does not answer", s.opts.Path)
	}
}

// write is the writer: the one goroutine that owns the file.
func (s *Sink) write(out *output) error {
	age := time.NewTimer(s.opts.RotateAge)
	defer age.Stop()
	aging := 0 // the number of the file that age is about; files are numbered from 1
	var group []job
	for {
		if s.opts.RotateAge == 0 || out.file == nil || out.size == 0 {
			age.Stop()
			aging = 0
		} else if aging != out.opened {
			age.Reset(s.opts.RotateAge)
			aging = out.opened
		}
		select {
		case <-s.stop:
			return errors.Join(out.close(), s.lock.Close())
		case <-age.C:
			// A failure leaves the file in use; the next append meets its cause.
			_ = out.rotate()
		case first := <-s.jobs:
			group = s.gather(append(group[:0], first))
			err := s.writeGroup(out, group)
			for _, j := range group {
				j.done <- err
				s.giveBack(j.lines)
			}
			clear(group)
		}
	}
}

// gather adds the jobs that wait already.
func (s *Sink) gather(group []job) []job {
	size := len(*group[0].lines)
	for size < maxGroupBytes {
		select {
		case j := <-s.jobs:
			group = append(group, j)
			size += len(*j.lines)
		default:
			return group
		}
	}
	return group
}

func (s *Sink) writeGroup(out *output, group []job) error {
	parts := make([][]byte, len(group))
	size := out.size
	for i, j := range group {
		parts[i] = *j.lines
		size += int64(len(*j.lines))
	}
	if limit := s.opts.RotateBytes; limit > 0 && out.file != nil && out.size > 0 && size > limit {
		if err := out.rotate(); err != nil {
			return err
		}
	}
	return out.append(parts...)
}
