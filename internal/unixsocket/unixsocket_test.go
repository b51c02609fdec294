//go:build linux || darwin

package unixsocket

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Roles that this test binary plays as a process of its own.
const (
	roleVar   = "UNIXSOCKET_TEST_ROLE"
	rolePath  = "UNIXSOCKET_TEST_PATH"
	nobodyUID = 65534
)

// TestRole is not a test: it is what a child process runs.
func TestRole(t *testing.T) {
	path := os.Getenv(rolePath)
	switch os.Getenv(roleVar) {
	case "":
		t.Skip("runs in a child process only")
	case "own":
		// Take the socket, say so, and hold it until stdin ends.
		s, err := Listen(path)
		if err != nil {
			os.Stdout.WriteString("refused: " + err.Error() + "\n")
			return
		}
		os.Stdout.WriteString("owner\n")
		new(bytes.Buffer).ReadFrom(os.Stdin)
		s.Close()
	case "knock":
		// Connect over and over until stdin ends; say how often it worked.
		over := make(chan struct{})
		go func() {
			new(bytes.Buffer).ReadFrom(os.Stdin)
			close(over)
		}()
		tries, opened := 0, 0
		os.Stdout.WriteString("ready\n")
		for {
			select {
			case <-over:
				os.Stdout.WriteString(strconv.Itoa(opened) + " of " + strconv.Itoa(tries) + "\n")
				return
			default:
			}
			tries++
			if nc, err := net.Dial("unix", path); err == nil {
				opened++
				nc.Close()
			}
		}
	}
}

// child is a process of this test binary.
type child struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	out   *lines
}

// lines passes on what a process writes, line by line.
type lines struct {
	mu   sync.Mutex
	part []byte
	ch   chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.ch <- string(line)
		l.part = rest
	}
}

func startChild(t *testing.T, role, path string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestRole$", "-test.count=1")
	cmd.Env = append(os.Environ(), roleVar+"="+role, rolePath+"="+path)
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	c := &child{cmd: cmd, out: &lines{ch: make(chan string, 100)}}
	cmd.Stdout = c.out
	cmd.Stderr = os.Stderr
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// end lets the child finish.
func (c *child) end(t *testing.T) {
	t.Helper()
	c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v", err)
	}
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// The name has its final mode from its birth on, whatever the umask, and nobody can connect
// before the socket listens.
func TestSocketIsBornPrivate(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "s")
	fd, err := newSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s := &Socket{path: path}
	if err := s.bind(fd); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, path); got != os.ModeSocket|socketMode {
		t.Errorf("after bind the mode is %v", got)
	}
	if nc, err := net.Dial("unix", path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect before listen: %v", err)
		if err == nil {
			nc.Close()
		}
	}
}

// A name that was born with another mode is an error, and goes again.
func TestUmaskThatTakesRightsOfTheOwner(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the umask plays no part here")
	}
	path := filepath.Join(t.TempDir(), "s")
	fd, err := newSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	old := unix.Umask(0o277)
	defer unix.Umask(old)
	if err := (&Socket{path: path}).bind(fd); err == nil || !strings.Contains(err.Error(), "0400 instead of 0600") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name is left: %v", err)
	}
}

// Another user hammers the path while the socket is made and removed again and
// again under the most generous umask.
func TestNoOtherUserConnectsAtAnyInstant(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	dir := openToAll(t)
	path := filepath.Join(dir, "s")
	old := unix.Umask(0)
	defer unix.Umask(old)
	c := startChild(t, "knock", path, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}})
	if got := <-c.out.ch; got != "ready" {
		t.Fatalf("child says %q", got)
	}
	for range 300 {
		s, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.stdin.Close()
	for got := range c.out.ch {
		opened, tries, ok := strings.Cut(got, " of ")
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(tries); opened != "0" || err != nil || n == 0 {
			t.Errorf("another user connected: %s", got)
		}
		break
	}
	if err := c.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// openToAll returns a folder that every user can look into, with its parents.
func openToAll(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(exe); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWhatIsAtThePath(t *testing.T) {
	tests := []struct {
		name  string
		put   func(t *testing.T, path string)
		want  string // of the error; "" is none
		inUse bool
		keeps bool // what is at path is still there after a refusal
	}{
		{"nothing", func(*testing.T, string) {}, "", false, false},
		{"stale socket", stale, "", false, false},
		{"live socket of a stranger without a lock", live, "something answers", true, true},
		{"file", func(t *testing.T, path string) { write(t, path, "precious") }, "not a socket", false, true},
		{"folder", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "not a socket", false, true},
		{"link to nowhere", func(t *testing.T, path string) { must(t, os.Symlink(path+".away", path)) }, "not a socket", false, true},
		{"link to a stale socket", func(t *testing.T, path string) {
			stale(t, path+".real")
			must(t, os.Symlink(path+".real", path))
		}, "not a socket", false, true},
		{"lock is a link", func(t *testing.T, path string) {
			write(t, path+".real", "precious")
			must(t, os.Symlink(path+".real", path+lockSuffix))
		}, "open the lock", false, false},
		{"lock is a folder", func(t *testing.T, path string) { must(t, os.Mkdir(path+lockSuffix, 0o700)) }, "open the lock", false, false},
		{"lock is a pipe", func(t *testing.T, path string) { must(t, unix.Mkfifo(path+lockSuffix, 0o600)) }, "not a plain file", false, false},
		{"lock left behind", func(t *testing.T, path string) { write(t, path+lockSuffix, "") }, "", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			tt.put(t, path)
			s, err := Listen(path)
			if tt.want == "" {
				must(t, err)
				if got := mode(t, path); got != os.ModeSocket|socketMode {
					t.Errorf("mode %v", got)
				}
				must(t, s.Close())
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("after close: %v, want no file", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrInUse) != tt.inUse {
				t.Fatalf("err = %v, want %q", err, tt.want)
			}
			if tt.keeps {
				mode(t, path)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, s string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(s), 0o600))
}

// stale leaves a socket that nobody listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
}

func live(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	t.Cleanup(func() { l.Close() })
}

func TestSocketOfAnotherUserIsLeftAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a socket away")
	}
	path := filepath.Join(t.TempDir(), "s")
	stale(t, path)
	must(t, os.Chown(path, nobodyUID, nobodyUID))
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "belongs to user id 65534") {
		t.Errorf("err = %v", err)
	}
	mode(t, path)
}

// Of twenty processes that start at once exactly one owns the socket, over what a
// killed one left behind.
func TestTwentyStartersLeaveOneOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale(t, path)
	const n = 20
	children := make([]*child, n)
	for i := range children {
		children[i] = startChild(t, "own", path, nil)
	}
	owners := 0
	for _, c := range children {
		switch got := <-c.out.ch; {
		case got == "owner":
			owners++
		case !strings.Contains(got, ErrInUse.Error()):
			t.Errorf("a starter says %q", got)
		}
	}
	nc, err := net.Dial("unix", path)
	if owners != 1 || err != nil {
		t.Errorf("%d owners, connecting gives %v", owners, err)
	}
	if err == nil {
		nc.Close()
	}
	for _, c := range children {
		c.end(t)
	}
	s, err := Listen(path)
	must(t, err)
	must(t, s.Close())
}

// The lock decides, not what is at the path: a starter that finds a stale socket, or none, while
// another one is about to listen must not go on.
func TestTheLockDecides(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(path)
	must(t, err)
	must(t, os.Remove(path))
	if _, err := Listen(path); !errors.Is(err, ErrInUse) {
		t.Errorf("without a socket at the path: %v, want ErrInUse", err)
	}
	stale(t, path)
	if _, err := Listen(path); !errors.Is(err, ErrInUse) {
		t.Errorf("with a stale one: %v, want ErrInUse", err)
	}
	must(t, s.Close())
	s, err = Listen(path)
	must(t, err)
	must(t, s.Close())
}

// A socket that was put in the place of ours is not removed with ours.
func TestCloseRemovesOnlyItsOwnSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(path)
	must(t, err)
	must(t, os.Rename(path, path+".old"))
	stale(t, path)
	must(t, s.Close())
	mode(t, path)
}

func TestLongestPathWorks(t *testing.T) {
	dir := t.TempDir()
	room := MaxPathBytes - len(dir) - 1
	if room < 1 {
		t.Skip("the temporary folder has a long name")
	}
	s, err := Listen(filepath.Join(dir, strings.Repeat("x", room)))
	must(t, err)
	must(t, s.Close())
}

func TestMissingFolder(t *testing.T) {
	if _, err := Listen(filepath.Join(t.TempDir(), "no", "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
}

func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(path)
	must(t, err)
	defer s.Close()
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	defer nc.Close()
	got, err := Peer(nc)
	must(t, err)
	if got.UID != uint32(os.Geteuid()) || got.GID != uint32(os.Getegid()) {
		t.Errorf("got %+v", got)
	}
	must(t, nc.Close())
	if _, err := Peer(nc); err == nil {
		t.Error("a closed socket has credentials")
	}
}
