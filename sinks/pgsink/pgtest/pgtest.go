// Package pgtest runs real PostgreSQL servers for tests, each with a data folder of its own, that can be killed and started again.
package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-agent/weir/sinks/sinktest"
)

// Password is that of every user who has one.
const Password = "s3cret-passw0rd"

// Server is one PostgreSQL with the database weir, the superuser weir, who needs the password over TCP and none over the Unix
// socket, and TLS where it was asked for.
type Server struct {
	sinktest.Process
	// Address is host:port, the same after a restart.
	Address string
	// Dir is its folder, with the socket.
	Dir string

	t     testing.TB
	bin   string
	owner *syscall.Credential
}

// binaries returns the folder of the server's programs. Where there is none the test is left out, and fails with CI=true.
func binaries(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	if len(found) > 0 {
		slices.Sort(found)
		return filepath.Dir(found[len(found)-1])
	}
	sinktest.LeaveOut(t, "PostgreSQL", "Debian: apt-get install postgresql")
	return ""
}

// Start makes a data folder and runs a server on it. more is put into its configuration.
func Start(t testing.TB, more string) *Server {
	t.Helper()
	s := &Server{t: t, bin: binaries(t), Address: sinktest.FreeAddress(t)}
	var err error
	// Not t.TempDir, where other users may not enter: the server refuses to run as root.
	if s.Dir, err = os.MkdirTemp("", "weir-postgres-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(s.Dir); err != nil {
			t.Error(err)
		}
	})
	s.disown()
	s.Write("password", Password)
	s.do("initdb", "-D", s.data(), "-U", "weir", "--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile="+filepath.Join(s.Dir, "password"), "--encoding=UTF8", "--no-locale", "--no-sync")
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	s.Write("data/postgresql.auto.conf", fmt.Sprintf("listen_addresses = '%s'\nport = %s\nunix_socket_directories = '%s'\n%s", host, port, s.Dir, more))
	s.Process = sinktest.Process{
		Command: func() *exec.Cmd { return s.command("postgres", "-D", s.data()) },
		Log:     filepath.Join(s.Dir, "log"),
		Serves:  s.serves,
		Again:   "pre-existing shared memory block", // of children of one that was killed, which have not found that out yet
		End:     syscall.SIGQUIT,                    // it ends its children at once
	}
	s.Start(t)
	s.Exec("CREATE DATABASE weir")
	return s
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// disown gives the folder to a user that the server runs as, where this process is root.
func (s *Server) disown() {
	s.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		owner, err = user.Lookup("nobody")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	uid, err := strconv.ParseUint(owner.Uid, 10, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	gid, err := strconv.ParseUint(owner.Gid, 10, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	s.chown(s.Dir)
}

func (s *Server) chown(path string) {
	s.t.Helper()
	if s.owner == nil {
		return
	}
	if err := os.Chown(path, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
		s.t.Fatal(err)
	}
}

// Write writes a file of the server's folder, which the server can read and nobody else.
func (s *Server) Write(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.Dir, name)
	sinktest.WriteFile(s.t, path, text)
	s.chown(path)
	return path
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if s.owner != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	}
	return cmd
}

func (s *Server) do(program string, args ...string) {
	s.t.Helper()
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// serves tells whether the server lets in.
func (s *Server) serves() bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.admin("postgres"))
	if err != nil {
		return false
	}
	_ = conn.Close(ctx) // it was only to see
	return true
}

// admin is the address for the superuser, over the Unix socket.
func (s *Server) admin(database string) string {
	_, port, _ := net.SplitHostPort(s.Address)
	return fmt.Sprintf("postgres://weir@/%s?host=%s&port=%s", database, url.QueryEscape(s.Dir), port)
}

// URL is the address of the database weir for a user, without a password.
func (s *Server) URL(user string) string { return "postgres://" + user + "@" + s.Address + "/weir" }

// PasswordFile has the password, for who runs the test.
func PasswordFile(t testing.TB) string {
	t.Helper()
	return sinktest.File(t, Password+"\n")
}

// Connect returns a connection of the superuser to the database weir, which the end of the test closes.
func (s *Server) Connect() *pgx.Conn {
	s.t.Helper()
	return s.connect("weir")
}

func (s *Server) connect(database string) *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.admin(database))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may be gone
	return conn
}

// Exec runs statements as the superuser, in the database weir where there is one.
func (s *Server) Exec(statements ...string) {
	s.t.Helper()
	for _, sql := range statements {
		database := "weir"
		if strings.HasPrefix(sql, "CREATE DATABASE") {
			database = "postgres"
		}
		conn := s.connect(database)
		if _, err := conn.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatalf("%s: %v", sql, err)
		}
		if err := conn.Close(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Stored returns the records in the table weir_records, in no order.
func (s *Server) Stored() []sinktest.Stored {
	s.t.Helper()
	conn := s.Connect()
	defer conn.Close(s.t.Context())
	found, err := conn.Query(s.t.Context(), "SELECT record_id, payload FROM weir_records")
	if err != nil {
		s.t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r sinktest.Stored, err error) {
		var payload []byte
		err = row.Scan(&r.ID, &payload)
		r.Payload = string(payload)
		return r, err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}
