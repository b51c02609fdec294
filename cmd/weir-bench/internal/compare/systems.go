package compare

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// Systems returns all systems that answer a producer over a connection. weir is the path of its binary.
func Systems(weir string) []System {
	return []System{
		{"weir", "Durable pushes", startWeir(weir), func() Producer { return &weirProducer{} }},
		{"Redis list", "appendonly yes, appendfsync always", startRedis, func() Producer { return &redis{command: []string{"RPUSH", "q"}} }},
		{"Redis stream", "appendonly yes, appendfsync always", startRedis, func() Producer { return &redis{command: []string{"XADD", "s", "*", "d"}} }},
		{"NATS JetStream", "file storage, sync_interval: always", startNATS, func() Producer { return &nats{inbox: "_INBOX." + rand.Text()} }},
		{"beanstalkd", "-f 0: fsync at each put", startBeanstalkd, func() Producer { return &beanstalkd{} }},
		{"rsyslog", "RELP into a disk queue, syncqueuefiles on, checkpoint at each message", startRsyslog, func() Producer { return &relp{} }},
	}
}

// freePort returns a loopback port that nobody uses.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

func startWeir(binary string) func(context.Context, string) (*Server, error) {
	return func(ctx context.Context, dir string) (*Server, error) {
		abs, err := filepath.Abs(binary)
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, "data")
		return launch(ctx, dir, "unix", filepath.Join(data, "weir.sock"), abs, "run", "--data-dir", data, "--admin", "", "--sink", "discard", "--log-level", "error")
	}
}

type weirProducer struct{ body [64]byte }

func (*weirProducer) Hello(*bufio.ReadWriter) error { return nil }

func (*weirProducer) Request(b, payload []byte) []byte {
	return frame.Append(b, frame.Push, record.Durable, payload)
}

func (p *weirProducer) Reply(r *bufio.Reader) error {
	if _, err := io.ReadFull(r, p.body[:20]); err != nil {
		return err
	}
	h, err := frame.ParseReplyHeader(p.body[:16], frame.Push)
	if err == nil && h.Type != frame.Ack {
		err = fmt.Errorf("got %v", h.Type)
	}
	return err
}

func startRedis(ctx context.Context, dir string) (*Server, error) {
	sock := filepath.Join(dir, "redis.sock")
	return launch(ctx, dir, "unix", sock, "redis-server", "--port", "0", "--unixsocket", sock, "--dir", dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
}

type redis struct{ command []string }

func (*redis) Hello(*bufio.ReadWriter) error { return nil }

func (p *redis) Request(b, payload []byte) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(p.command)+1)
	for _, word := range p.command {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	b = fmt.Appendf(b, "$%d\r\n", len(payload))
	b = append(b, payload...)
	return append(b, "\r\n"...)
}

func (*redis) Reply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	switch line[0] {
	case ':':
		return nil
	case '$': // the id of a stream entry
		n, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
		if err != nil {
			return err
		}
		_, err = r.Discard(n + 2)
		return err
	}
	return fmt.Errorf("redis: %s", line)
}

func startNATS(ctx context.Context, dir string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:%s\"\njetstream { store_dir: %q, sync_interval: always }\n", port, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, dir, "tcp", "127.0.0.1:"+port, "nats-server", "-c", config)
}

// nats publishes to a stream and takes the acks on an inbox.
type nats struct{ inbox string }

func (p *nats) Hello(rw *bufio.ReadWriter) error {
	const stream = `{"name":"BENCH","subjects":["bench"],"storage":"file","discard":"old"}`
	fmt.Fprintf(rw, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB %s 1\r\nPUB $JS.API.STREAM.CREATE.BENCH %s %d\r\n%s\r\n", p.inbox, p.inbox, len(stream), stream)
	if err := rw.Flush(); err != nil {
		return err
	}
	_, err := p.message(rw.Reader) // an error in it means that another producer has made it
	return err
}

func (p *nats) Request(b, payload []byte) []byte {
	b = fmt.Appendf(b, "PUB bench %s %d\r\n", p.inbox, len(payload))
	b = append(b, payload...)
	return append(b, "\r\n"...)
}

// message reads up to the next message and returns its payload.
func (*nats) message(r *bufio.Reader) ([]byte, error) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")):
			fields := bytes.Fields(line)
			n, err := strconv.Atoi(string(fields[len(fields)-1]))
			if err != nil {
				return nil, err
			}
			body := make([]byte, n+2)
			_, err = io.ReadFull(r, body)
			return body[:n], err
		case bytes.HasPrefix(line, []byte("-ERR")):
			return nil, fmt.Errorf("nats: %s", line)
		}
	}
}

func (p *nats) Reply(r *bufio.Reader) error {
	body, err := p.message(r)
	if err == nil && !bytes.Contains(body, []byte(`"seq"`)) {
		err = fmt.Errorf("nats: %s", body)
	}
	return err
}

func startBeanstalkd(ctx context.Context, dir string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return launch(ctx, dir, "tcp", "127.0.0.1:"+port, "beanstalkd", "-l", "127.0.0.1", "-p", port, "-b", dir, "-f", "0")
}

type beanstalkd struct{}

func (beanstalkd) Hello(*bufio.ReadWriter) error { return nil }

func (beanstalkd) Request(b, payload []byte) []byte {
	b = fmt.Appendf(b, "put 1 0 60 %d\r\n", len(payload))
	b = append(b, payload...)
	return append(b, "\r\n"...)
}

func (beanstalkd) Reply(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err == nil && !bytes.HasPrefix(line, []byte("INSERTED")) {
		err = fmt.Errorf("beanstalkd: %s", line)
	}
	return err
}

// startRsyslog takes messages by RELP, the one input of rsyslog that answers, into a main queue on disk. The action behind it
// is slow on purpose, so that the queue is what is measured.
func startRsyslog(ctx context.Context, dir string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "rsyslog.conf")
	text := fmt.Sprintf(`global(workDirectory=%q)
module(load="imrelp")
main_queue(queue.type="Disk" queue.filename="main" queue.syncqueuefiles="on" queue.checkpointinterval="1" queue.maxdiskspace="20g" queue.size="100000000" queue.saveonshutdown="on")
input(type="imrelp" port=%q address="127.0.0.1")
action(type="omfile" file="/dev/null")
`, dir, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, dir, "tcp", "127.0.0.1:"+port, "rsyslogd", "-n", "-f", config, "-i", filepath.Join(dir, "rsyslogd.pid"))
}

// relp is the Reliable Event Logging Protocol.
type relp struct{ txn int }

func (p *relp) frame(b []byte, command string, data []byte) []byte {
	p.txn = p.txn%999_999_999 + 1
	b = fmt.Appendf(b, "%d %s %d ", p.txn, command, len(data))
	b = append(b, data...)
	return append(b, '\n')
}

func (p *relp) Hello(rw *bufio.ReadWriter) error {
	offer := "relp_version=0\nrelp_software=weir-bench\ncommands=syslog"
	if _, err := rw.Write(p.frame(nil, "open", []byte(offer))); err != nil {
		return err
	}
	if err := rw.Flush(); err != nil {
		return err
	}
	return p.Reply(rw.Reader)
}

func (p *relp) Request(b, payload []byte) []byte { return p.frame(b, "syslog", payload) }

func (p *relp) Reply(r *bufio.Reader) error {
	for range 2 { // transaction number, command
		if _, err := r.ReadSlice(' '); err != nil {
			return err
		}
	}
	size, err := r.ReadSlice(' ')
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(size)))
	if err != nil {
		return err
	}
	body := make([]byte, n+1)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if !bytes.HasPrefix(body, []byte("200")) {
		return fmt.Errorf("relp: %s", body)
	}
	return nil
}
