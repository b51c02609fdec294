package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the weida under test, built once by TestMain.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weida-test-")
	if err == nil {
		binary = filepath.Join(dir, "weida")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err == nil {
		// Who does not say otherwise is the same peer in all tests.
		err = os.Setenv("WEIDA_IDENTITY", filepath.Join(dir, "identity"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// patience is long after everything should have ended.
const patience = 2 * time.Minute

// result is what a command that has ended did.
type result struct {
	out, err string
	code     int
}

// run runs a command to its end.
func run(t *testing.T, in io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errOut
	return result{code: code(t, cmd.Run()), out: out.String(), err: errOut.String()}
}

// code is the exit status, and fails for a process that ended otherwise.
func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || !exit.Exited() {
		t.Fatalf("it did not end by itself: %v", err)
	}
	return exit.ExitCode()
}

// want checks the end of a command.
func (r result) want(t *testing.T, code int, out, errPart string) {
	t.Helper()
	if r.code != code || r.out != out || !strings.Contains(r.err, errPart) {
		t.Errorf("got status %d, output %.200q, error %.500q\nwant %d, %.200q, %q", r.code, r.out, r.err, code, out, errPart)
	}
}

// process is a command that runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *lockedBuffer
	note *lockedBuffer
	done chan error
}

// lockedBuffer keeps what was written, for readers beside the writer.
type lockedBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{} // closed and replaced with each write
}

func newLockedBuffer() *lockedBuffer { return &lockedBuffer{changed: make(chan struct{})} }

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wait waits until the buffer holds what ok wants.
func (l *lockedBuffer) wait(t *testing.T, ok func(string) bool) string {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		l.mu.Lock()
		s, changed := l.b.String(), l.changed
		l.mu.Unlock()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("it never came; what is there: %.500q", s)
		}
	}
}

func contains(part string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, part) }
}

// start starts a command. It is killed with the test, if it has not ended.
func start(t *testing.T, in io.Reader, out io.Writer, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), out: newLockedBuffer(), note: newLockedBuffer(), done: make(chan error, 1)}
	if out == nil {
		out = p.out
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, p.note
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
	})
	return p
}

// inputPipe is what a command reads and the test writes.
func inputPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close() // the test may have
	})
	return r, w
}

// serve starts a side that is dialled, and returns the address that it prints.
func serve(t *testing.T, in io.Reader, args ...string) (*process, string) {
	t.Helper()
	p := start(t, in, nil, append([]string{"serve"}, args...)...)
	note := p.note.wait(t, func(s string) bool { return strings.Contains(s, "serving ") && strings.HasSuffix(s, "\n") })
	line, _, _ := strings.Cut(note[strings.Index(note, "serving ")+len("serving "):], "\n")
	return p, line
}

// end waits for the end.
func (p *process) end() result {
	p.t.Helper()
	select {
	case err := <-p.done:
		return result{code: code(p.t, err), out: p.out.String(), err: p.note.String()}
	case <-time.After(patience):
		p.t.Fatalf("it does not end: %s", p.note)
		panic("not reached")
	}
}

// stop ends it with SIGTERM.
func (p *process) stop() result {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.end()
}

// places are an address to bind at for each carrier.
func places(t *testing.T) map[string]string {
	return map[string]string{"quic": "weida://127.0.0.1:0/p", "unix": unixPlace(t)}
}

func unixPlace(t *testing.T) string {
	return "weida+unix://" + strings.ReplaceAll(filepath.Join(t.TempDir(), "s"), "/", "%2F") + "/p"
}

// binaryMessages hold every byte, and none, and each end of a message.
func binaryMessages(except string) []string {
	var every strings.Builder
	for b := range 256 {
		if strings.IndexByte(except, byte(b)) < 0 {
			every.WriteByte(byte(b))
		}
	}
	long := strings.Repeat(every.String(), 1000)
	return []string{every.String(), "", long, "end"}
}

// framed is messages as a framing has them.
func framed(name string, messages []string) string {
	var b strings.Builder
	for _, m := range messages {
		switch name {
		case "line":
			b.WriteString(m + "\n")
		case "nul":
			b.WriteString(m + "\x00")
		case "length":
			b.Write([]byte{byte(len(m) >> 24), byte(len(m) >> 16), byte(len(m) >> 8), byte(len(m))})
			b.WriteString(m)
		default:
			b.WriteString(m)
		}
	}
	return b.String()
}

// Every framing carries any bytes that it can tell apart, from one process to another, over each carrier, with and without answers.
func TestPipelines(t *testing.T) {
	for carrier, place := range places(t) {
		for _, tt := range []struct{ framing, except string }{{"line", "\n"}, {"nul", "\x00"}, {"length", ""}, {"raw", ""}} {
			for _, confirm := range []string{"--confirm=false", "--confirm"} {
				t.Run(carrier+" "+tt.framing+" "+confirm, func(t *testing.T) {
					in := framed(tt.framing, binaryMessages(tt.except))
					sink, address := serve(t, nil, "--sink", "--framing", tt.framing, confirm, place)
					sent := run(t, strings.NewReader(in), "send", "--framing", tt.framing, confirm, address)
					n := 4
					if tt.framing == "raw" {
						n = 1
					}
					sent.want(t, 0, "", fmt.Sprintf("%d of %d messages arrived", n, n))
					sink.stop().want(t, 0, in, fmt.Sprintf("%d messages written", n))
				})
			}
			t.Run(carrier+" "+tt.framing+" request", func(t *testing.T) {
				in := framed(tt.framing, binaryMessages(tt.except))
				echo, address := serve(t, nil, "--echo", place)
				run(t, strings.NewReader(in), "request", "--framing", tt.framing, address).want(t, 0, in, "")
				echo.stop().want(t, 0, "", "")
			})
		}
	}
}

// A thousand lines stay in order, and the sink's own end comes when it has as many as it was told.
func TestOrderAndCount(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&b, i)
	}
	for carrier, place := range places(t) {
		t.Run(carrier, func(t *testing.T) {
			sink, address := serve(t, nil, "--sink", "--count", "1000", place)
			run(t, strings.NewReader(b.String()), "send", address).want(t, 0, "", "1000 of 1000 messages arrived, 1000 were taken")
			sink.end().want(t, 0, b.String(), "1000 messages written\n")
		})
	}
}

func TestPublishing(t *testing.T) {
	for carrier, place := range places(t) {
		t.Run(carrier, func(t *testing.T) {
			r, w := inputPipe(t)
			pub, address := serve(t, r, "--pub", "--topics", "--subscribers", "2", place)
			all := start(t, nil, nil, "sub", address, "--topics", "--count", "3")
			some := start(t, nil, nil, "sub", address, "--filter", "eur.*", "--filter", "usd.#", "--json", "--count", "2")
			for _, line := range []string{"eur.spot\t1", "chf\t2", "usd\ta\tb"} {
				fmt.Fprintln(w, line) // the first waits for both
			}
			got := all.end()
			for _, line := range []string{"eur.spot\t1\n", "chf\t2\n", "usd\ta\tb\n"} { // streams are not ordered over topics
				if got.code != 0 || !strings.Contains(got.out, line) {
					t.Errorf("got %+v, want %q in it", got, line)
				}
			}
			if got := some.end(); got.code != 0 || strings.Count(got.out, "\n") != 2 ||
				!strings.Contains(got.out, `"topic":"eur.spot"`) || !strings.Contains(got.out, `"payload":"YQli"`) {
				t.Errorf("got %+v", got)
			}
			w.Close()
			pub.end().want(t, 0, "", "3 messages published, 5 copies queued, 0 dropped")
		})
	}
}

// A key that does not answer to the pin, or is not allowed, gets nothing, and both sides can be told who it was.
func TestTrust(t *testing.T) {
	id := t.TempDir()
	own := run(t, nil, "identity", "--identity", id)
	fingerprint := strings.TrimSpace(own.out)
	if again := run(t, nil, "identity", "--identity", id, "--json"); own.code != 0 || !strings.Contains(again.out, `"`+fingerprint+`"`) {
		t.Errorf("got %+v, then %+v", own, again)
	}
	sink, address := serve(t, nil, "--sink", "--allow", fingerprint, "weida://127.0.0.1:0/p")
	_, authority, _ := strings.Cut(address, "@")
	server, _, _ := strings.Cut(strings.TrimPrefix(address, "weida://"), "@")
	hello := func() io.Reader { return strings.NewReader("hello\n") }
	run(t, hello(), "send", "--identity", id, address).want(t, 0, "", "1 of 1")
	run(t, hello(), "send", "--identity", id, "--trust", server, "weida://"+authority).want(t, 0, "", "1 of 1")
	run(t, hello(), "send", address).want(t, 1, "", "weida: ")
	run(t, hello(), "send", "--anonymous", address).want(t, 1, "", "weida: ")
	wrong := strings.Repeat("0", 64)
	run(t, hello(), "send", "--identity", id, "weida://sha256:"+wrong+"@"+authority).want(t, 1, "", "untrusted peer "+server)
	run(t, hello(), "send", "--identity", id, "--trust", "sha256:"+wrong, "weida://"+authority).want(t, 1, "", "untrusted peer "+server)
	run(t, hello(), "send", "--identity", id, "weida://"+authority).want(t, 2, "", "nobody is trusted")
	sink.stop().want(t, 0, "hello\nhello\n", "2 messages written")
}

func TestMisuse(t *testing.T) {
	unix := unixPlace(t)
	for name, args := range map[string][]string{
		"no command that there is":      {"bogus"},
		"no such flag":                  {"send", "--bogus", unix},
		"no address":                    {"send"},
		"two addresses":                 {"request", unix, unix},
		"an address of another kind":    {"send", "http://x/y"},
		"an address without a port":     {"send", "weida://host/y"},
		"in-process, to dial":           {"send", "weida+inproc://bus/p"},
		"in-process, to bind":           {"serve", "--sink", "weida+inproc://bus/p"},
		"a pipe, to bind":               {"serve", "--sink", "weida+pipe://name/p"},
		"a pin in an address to bind":   {"serve", "--sink", "weida://sha256:" + strings.Repeat("0", 64) + "@127.0.0.1:0/p"},
		"a path that cannot be":         {"serve", "--sink", "weida://127.0.0.1:0/\x01"},
		"nothing to serve":              {"serve", unix},
		"two things to serve":           {"serve", "--sink", "--echo", unix},
		"a flag of another kind":        {"serve", "--echo", "--count", "1", unix},
		"an unknown framing":            {"serve", "--sink", "--framing", "lines", unix},
		"a negative count":              {"sub", "--count", "-1", unix},
		"a filter that cannot be":       {"sub", "--filter", "a*b", unix},
		"a fingerprint that cannot be":  {"send", "--trust", "sha256:0", "weida://127.0.0.1:1/p"},
		"no file of certificates":       {"send", "--trust-ca", "/nowhere", "weida://127.0.0.1:1/p"},
		"repeats without answers":       {"send", "--repeat", unix},
		"one topic and many":            {"send", "--topic", "a", "--topics", unix},
		"topics of what has no framing": {"send", "--framing", "raw", "--topics", unix},
		"no room for a message":         {"send", "--max-bytes", "0", unix},
	} {
		t.Run(name, func(t *testing.T) { run(t, nil, args...).want(t, 2, "", "weida: ") })
	}
	for _, scheme := range []string{"send", "serve --sink"} {
		args := append(strings.Fields(scheme), "weida+inproc://bus/p")
		run(t, nil, args...).want(t, 2, "", "weida+inproc reaches nobody outside of this process")
	}
	run(t, nil, "send", "weida+pipe://name/p").want(t, 1, "", "weida+pipe on ")
}

// What nobody serves is an error that is certain, where somebody can answer.
func TestUnknownPath(t *testing.T) {
	for carrier, place := range places(t) {
		t.Run(carrier, func(t *testing.T) {
			_, address := serve(t, nil, "--echo", place)
			in := strings.NewReader("x\n")
			run(t, in, "request", address+"x").want(t, 1, "", "unknown endpoint")
			run(t, strings.NewReader("x\n"), "send", "--confirm", address+"x").want(t, 1, "", "message 1: ")
			// More than what is under way without being read.
			big := bytes.NewReader(bytes.Repeat([]byte{'x'}, 16<<20))
			if got := run(t, big, "send", "--framing", "raw", address+"x"); got.code != 1 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Nobody is there, and then somebody is.
func TestWaitsAtFirst(t *testing.T) {
	place := unixPlace(t)
	run(t, strings.NewReader("x\n"), "send", place).want(t, 1, "", "weida: connect ")
	send := start(t, strings.NewReader("early\n"), nil, "send", "--wait", "1m", place)
	sink, _ := serve(t, nil, "--sink", place)
	send.end().want(t, 0, "", "1 of 1")
	sink.stop().want(t, 0, "early\n", "")
}

// An endpoint that goes away and comes back under its key gets what is sent from then on, by a command that has waited for it.
func TestComesBack(t *testing.T) {
	port := freePort(t)
	for carrier, place := range map[string]string{"quic": fmt.Sprintf("weida://127.0.0.1:%d/p", port), "unix": unixPlace(t)} {
		t.Run(carrier, func(t *testing.T) {
			r, w := inputPipe(t)
			sink, address := serve(t, nil, "--sink", "--confirm", place)
			send := start(t, r, nil, "send", "--confirm", "--repeat", "--timeout", "2m", address)
			fmt.Fprintln(w, "before")
			sink.out.wait(t, contains("before\n"))
			sink.stop().want(t, 0, "before\n", "")
			fmt.Fprintln(w, "meanwhile")
			again, _ := serve(t, nil, "--sink", "--confirm", place)
			again.out.wait(t, contains("meanwhile\n"))
			fmt.Fprintln(w, "after")
			w.Close()
			send.end().want(t, 0, "", "3 of 3 messages arrived")
			again.stop().want(t, 0, "meanwhile\nafter\n", "")
			if note := send.note.String(); !strings.Contains(note, "dialling again") || !strings.Contains(note, "connected again") {
				t.Errorf("it did not tell: %s", note)
			}
		})
	}
}

// A sink that is killed and comes back costs what was under way, which is told, and not the pipeline.
func TestKilledSinkComesBack(t *testing.T) {
	for carrier, place := range map[string]string{"quic": fmt.Sprintf("weida://127.0.0.1:%d/p", freePort(t)), "unix": unixPlace(t)} {
		t.Run(carrier, func(t *testing.T) {
			r, w := inputPipe(t)
			sink, address := serve(t, nil, "--sink", place)
			send := start(t, r, nil, "send", address)
			fmt.Fprintln(w, "before")
			sink.out.wait(t, contains("before\n"))
			if err := sink.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-sink.done
			fmt.Fprintln(w, "meanwhile") // is lost with the link, or waits for the next
			again, _ := serve(t, nil, "--sink", place)
			send.note.wait(t, contains("connected again"))
			fmt.Fprintln(w, "after")
			again.out.wait(t, contains("after\n"))
			w.Close()
			got := send.end()
			if all := strings.Contains(got.err, "3 of 3 messages arrived, 3 were taken"); all != (got.code == 0) {
				t.Errorf("got status %d, error %s", got.code, got.err)
			}
			if sum := again.stop(); !strings.HasSuffix(sum.out, "after\n") || sum.code != 0 {
				t.Errorf("got %+v", sum)
			}
		})
	}
}

// Another key at the same address is not the one that was there, and the command that waited says so.
func TestAnotherComesBack(t *testing.T) {
	place := fmt.Sprintf("weida://127.0.0.1:%d/p", freePort(t))
	r, w := inputPipe(t)
	pub, address := serve(t, r, "--pub", "--subscribers", "1", place)
	sub := start(t, nil, nil, "sub", address)
	fmt.Fprintln(w, "x")
	sub.out.wait(t, contains("x\n"))
	pub.stop().want(t, 0, "", "1 messages published")
	serve(t, nil, "--echo", "--identity", t.TempDir(), place)
	sub.end().want(t, 1, "x\n", "gave up")
}

func freePort(t *testing.T) int {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}

// A signal ends each command in order.
func TestSignals(t *testing.T) {
	place := unixPlace(t)
	socket := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(place, "weida+unix://"), "/p"), "%2F", "/")
	sink, address := serve(t, nil, "--sink", place)
	r, w := inputPipe(t)
	send := start(t, r, nil, "send", address)
	fmt.Fprintln(w, "taken")
	fmt.Fprint(w, "not whole")
	sink.out.wait(t, contains("taken\n"))
	send.stop().want(t, 1, "", "interrupted before the end of the input")
	sink.stop().want(t, 0, "taken\n", "1 messages written")
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}

	// What is streamed and was not ended is never whole.
	sink, _ = serve(t, nil, "--sink", "--framing", "raw", "--count", "1", place)
	r, w = inputPipe(t)
	send = start(t, r, nil, "send", "--framing", "raw", address)
	fmt.Fprint(w, "a part")
	sink.out.wait(t, contains("a part"))
	send.stop().want(t, 1, "", "interrupted")
	sink.end().want(t, 1, "a part", "broke off")

	echo, _ := serve(t, nil, "--echo", place)
	r, w = inputPipe(t)
	request := start(t, r, nil, "request", address)
	fmt.Fprintln(w, "one")
	request.out.wait(t, contains("one\n"))
	request.stop().want(t, 1, "one\n", "interrupted")
	echo.stop().want(t, 0, "", "")

	r, w = inputPipe(t)
	pub, _ := serve(t, r, "--pub", "--subscribers", "1", place)
	sub := start(t, nil, nil, "sub", address)
	fmt.Fprintln(w, "news")
	sub.out.wait(t, contains("news\n"))
	sub.stop().want(t, 0, "news\n", "1 messages written")
	pub.stop().want(t, 0, "", "1 messages published, 1 copies queued")
}

// A reader that has gone ends a command in order: what was not written is not confirmed.
func TestReaderGone(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	place := unixPlace(t)
	sink := start(t, nil, write, "serve", "--sink", "--confirm", place)
	write.Close()
	sink.note.wait(t, contains("serving "))
	r, w := inputPipe(t)
	send := start(t, r, nil, "send", "--confirm", place)
	fmt.Fprintln(w, "one")
	line, err := bufio.NewReader(read).ReadString('\n')
	if line != "one\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	read.Close()
	fmt.Fprintln(w, "two")
	sink.end().want(t, 1, "", "standard output: write")
	send.end().want(t, 1, "", "message 2: ")
}

// A message that is too long for the sink is left out and not cut.
func TestTooLong(t *testing.T) {
	place := unixPlace(t)
	sink, address := serve(t, nil, "--sink", "--confirm", "--max-bytes", "5", place)
	run(t, strings.NewReader("12345\n123456\n"), "send", "--confirm", address).want(t, 1, "", "message 2: ")
	run(t, strings.NewReader("123456\n"), "send", "--max-bytes", "5", address).want(t, 1, "", "standard input: the message is too long")
	sink.stop().want(t, 0, "12345\n", "1 messages written, 1 broke off")
}

// What reads as several messages is told.
func TestTornLines(t *testing.T) {
	_, address := serve(t, nil, "--echo", unixPlace(t))
	run(t, strings.NewReader("a\nb\x00"), "request", "--framing", "nul", address).want(t, 0, "a\nb\x00", "")
	run(t, nil, "request", "--data", "a", "--timeout", "0", address).want(t, 0, "a\n", "") // no limit, and not none left
	run(t, nil, "request", "--data", "a\nb", address).want(t, 0, "a\nb\n", "--framing length keeps them apart")
}

func TestJSON(t *testing.T) {
	_, address := serve(t, nil, "--echo", unixPlace(t))
	if got := run(t, nil, "request", "--data", "hi", "--json", "--content-type", "text/plain", address); got.code != 0 ||
		!strings.Contains(got.out, `"content_type":"text/plain","peer":"uid `) || !strings.HasSuffix(got.out, `"payload":"aGk="}`+"\n") {
		t.Errorf("got %+v", got)
	}
	if got := run(t, nil, "version", "--json"); got.code != 0 || !strings.Contains(got.out, `"wire":0`) {
		t.Errorf("got %+v", got)
	}
	if got := run(t, nil, "version"); got.code != 0 || !strings.HasPrefix(got.out, "weida ") {
		t.Errorf("got %+v", got)
	}
}

// Every command has an example, and explains itself.
func TestHelp(t *testing.T) {
	run(t, nil).want(t, 0, run(t, nil, "--help").out, "")
	for _, name := range []string{"serve", "send", "request", "sub", "identity", "version"} {
		got := run(t, nil, name, "--help")
		if got.code != 0 || !strings.Contains(got.out, "Examples:\n") || !strings.Contains(got.out, "  weida "+name) && !strings.Contains(got.out, "| weida "+name) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
