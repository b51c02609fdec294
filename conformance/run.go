package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	Passed, Skipped int
	Failures        []string // one line each: the vector, what was asked, got and wanted
}

// Err returns nil if everything passed and nothing but allowed skips was skipped.
func (r Report) Err(strict bool) error {
	switch {
	case len(r.Failures) > 0:
		return fmt.Errorf("conformance: %d of %d checks failed", len(r.Failures), r.Passed+len(r.Failures))
	case strict && r.Skipped > 0:
		return fmt.Errorf("conformance: %d checks were skipped", r.Skipped)
	case r.Passed == 0:
		return errors.New("conformance: nothing was checked")
	}
	return nil
}

func (r *Report) fail(v Vector, format string, args ...any) {
	r.Failures = append(r.Failures, v.Name+": "+fmt.Sprintf(format, args...))
}

// shown cuts long lines in a report.
func shown(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

const (
	// maxAnswerBytes bounds one line of a codec: twice the largest vector.
	maxAnswerBytes = 1 << 20
	// answerTimeout is how long a codec may take for one line.
	answerTimeout = 10 * time.Second
)

// RunCodec starts a command and gives it every line of every vector of the files named on stdin; it
// must answer each with one line on stdout. An error is one of the command: it
// cannot be started, or ended too soon.
func RunCodec(ctx context.Context, files []string, name string, args ...string) (Report, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return Report{}, fmt.Errorf("conformance: start the codec: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Report{}, fmt.Errorf("conformance: start the codec: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return Report{}, fmt.Errorf("conformance: start the codec: %w", err)
	}
	// A codec that does not answer is killed, which ends the read.
	watch := time.AfterFunc(answerTimeout, func() { _ = cmd.Process.Kill() })
	defer watch.Stop()
	report, err := drive(files, in, out, func() { watch.Reset(answerTimeout) })
	err = errors.Join(err, in.Close())
	if err != nil {
		_ = cmd.Process.Kill() // it may wait for more
	}
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = fmt.Errorf("conformance: the codec ended with: %w", werr)
	}
	return report, err
}

// drive asks everything over a pair of pipes.
func drive(files []string, in io.Writer, out io.Reader, progress func()) (Report, error) {
	var r Report
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxAnswerBytes)
	for _, name := range files {
		vectors, err := Load(name)
		if err != nil {
			return r, err
		}
		for _, v := range vectors {
			for _, x := range v.Exchanges() {
				progress()
				if _, err := io.WriteString(in, x.Request+"\n"); err != nil {
					return r, fmt.Errorf("conformance: %s: ask the codec: %w", v.Name, err)
				}
				if !lines.Scan() {
					return r, fmt.Errorf("conformance: %s: the codec gave no answer to %q: %w", v.Name, shown(x.Request), scanErr(lines))
				}
				r.judge(v, x, strings.TrimRight(lines.Text(), "\r"))
			}
		}
	}
	return r, nil
}

func scanErr(s *bufio.Scanner) error {
	if err := s.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (r *Report) judge(v Vector, x Exchange, got string) {
	switch got {
	case x.Want:
		r.Passed++
	case Skip:
		r.Skipped++
	default:
		r.fail(v, "asked %s, got %s, want %s", shown(x.Request), shown(got), shown(x.Want))
	}
}

// ServeCodec is the Go codec as a command: it answers every line of in on out,
// until in ends.
func ServeCodec(in io.Reader, out io.Writer) error { return serveLines(in, out, Answer) }

func serveLines(in io.Reader, out io.Writer, answer func(string) string) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxAnswerBytes)
	for lines.Scan() {
		if _, err := io.WriteString(out, answer(lines.Text())+"\n"); err != nil {
			return fmt.Errorf("conformance: answer: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("conformance: read a line: %w", err)
	}
	return nil
}
