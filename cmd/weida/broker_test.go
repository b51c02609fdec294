package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// brokerDir is the folder of a broker, with its configuration.
func brokerDir(t *testing.T, more string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "broker.toml")
	text := fmt.Sprintf("[broker]\ndata_dir = %q\nsocket = %q\nlisten = [\"127.0.0.1:0\"]\n[trust]\nanybody = true\n[admin]\nlisten = \"\"\nsocket = %q\n%s", filepath.Join(dir, "data"), filepath.Join(dir, "s"), filepath.Join(dir, "a"), more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

// broker starts a broker and returns the addresses of its queues: first those over QUIC, then those over its socket.
func broker(t *testing.T, file string, queues int) (*process, []string) {
	t.Helper()
	p := start(t, nil, nil, "broker", "run", "--config", file)
	out := p.out.wait(t, func(s string) bool { return strings.Count(s, "\n") == 2*queues })
	return p, strings.Fields(out)
}

// kill ends a process at once.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
}

// stopped ends a process with SIGTERM and wants it to end well.
func (p *process) stopped() {
	p.t.Helper()
	if r := p.stop(); r.code != 0 {
		p.t.Errorf("it ended with %d: %s", r.code, r.err)
	}
}

// What was confirmed is there after the broker was killed, and after it was stopped; what was settled is not.
func TestBrokerKeepsMessages(t *testing.T) {
	dir, file := brokerDir(t, "[[queue]]\npath = \"/q\"\n[[queue]]\npath = \"/memory\"\ndurability = \"memory\"\n")
	admin := filepath.Join(dir, "a")
	p, urls := broker(t, file, 2)
	for _, body := range []string{"one", "two", "three"} {
		run(t, strings.NewReader(body), "request", urls[0], "--framing", "raw").want(t, 0, "", "")
	}
	run(t, strings.NewReader("gone"), "request", urls[1], "--framing", "raw").want(t, 0, "", "")
	p.kill()
	p, urls = broker(t, file, 2)
	// Over the socket, as it is certain there that the settlement is heard before the link ends.
	run(t, nil, "sub", urls[2], "--queue", "--count", "1").want(t, 0, "one\n", "")
	p.stopped()
	p, urls = broker(t, file, 2)
	r := run(t, nil, "queue", "peek", "/q", "--admin", admin)
	if lines := strings.Split(r.out, "\n"); r.code != 0 || len(lines) != 3 || !strings.Contains(lines[0], `"two"`) || !strings.Contains(lines[1], `"three"`) {
		t.Errorf("got %+v", r)
	}
	run(t, nil, "queue", "peek", "/memory", "--admin", admin).want(t, 0, "", "")
	run(t, nil, "queue", "tail", "/q", "-n", "1", "--raw", "--admin", admin).want(t, 0, "three", "")
	run(t, nil, "queue", "peek", "/none", "--admin", admin).want(t, 1, "", `no queue "/none"`)
	run(t, nil, "queue", "peek", "/q", "-n", "0", "--admin", admin).want(t, 2, "", "--limit")
	run(t, nil, "queue", "list", "--admin", filepath.Join(dir, "nothing")).want(t, 1, "", "is it running")
	r = run(t, nil, "queue", "list", "--json", "--admin", admin)
	var listed struct {
		Queues []struct {
			Path     string
			Messages int
		}
	}
	if err := json.Unmarshal([]byte(r.out), &listed); err != nil || len(listed.Queues) != 2 || listed.Queues[0].Messages != 2 {
		t.Errorf("got %+v, %v", listed, err)
	}
	follow := start(t, nil, nil, "queue", "tail", "/q", "-f", "--raw", "--admin", admin)
	follow.out.wait(t, contains("twothree"))
	run(t, strings.NewReader("four"), "request", urls[0], "--framing", "raw").want(t, 0, "", "")
	follow.out.wait(t, contains("twothreefour"))
	follow.stopped()
	p.stopped()
}

// A message that is too long for its consumer goes back to the queue, and the consumer does not hang or go round with it.
func TestSubGivesBackWhatIsTooLong(t *testing.T) {
	dir, file := brokerDir(t, "[[queue]]\npath = \"/q\"\n")
	p, urls := broker(t, file, 1)
	run(t, strings.NewReader("four"), "request", urls[0], "--framing", "raw").want(t, 0, "", "")
	run(t, nil, "sub", urls[1], "--queue", "--count", "1", "--max-bytes", "3").want(t, 1, "", "--max-bytes 3")
	run(t, nil, "queue", "peek", "/q", "--raw", "--admin", filepath.Join(dir, "a")).want(t, 0, "four", "")
	run(t, nil, "sub", urls[1], "--queue", "--count", "1").want(t, 0, "four\n", "")
	p.stopped()
}

// A queue that the configuration names no more, or keeps in memory now, is told of: it may hold what was confirmed.
func TestBrokerTellsOfQueuesThatItDoesNotServe(t *testing.T) {
	_, file := brokerDir(t, "[[queue]]\npath = \"/a\"\n[[queue]]\npath = \"/b\"\n[[queue]]\npath = \"/c\"\n")
	p, _ := broker(t, file, 3)
	p.stopped()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.Replace(strings.Replace(string(text), `"/a"`, `"/other"`, 1), `"/b"`, "\"/b\"\ndurability = \"memory\"", 1)
	if err := os.WriteFile(file, []byte(renamed), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ = broker(t, file, 3)
	p.stopped()
	note := p.note.wait(t, contains("serving"))
	for name, want := range map[string]bool{"%2Fa": true, "%2Fb": true, "%2Fc": false, "%2Fother": false} {
		if got := strings.Contains(note, "folder=queues/"+name+"\n"); got != want {
			t.Errorf("%s: told %t, want %t", name, got, want)
		}
	}
}

// A second broker on the folder is refused before it touches anything.
func TestBrokerIsAlone(t *testing.T) {
	_, file := brokerDir(t, "[[queue]]\npath = \"/q\"\n")
	p, _ := broker(t, file, 1)
	r := run(t, nil, "broker", "run", "--config", file)
	if r.code != 1 || r.out != "" {
		t.Errorf("got %+v", r)
	}
	p.stopped()
}

func TestBrokerTrustsWhomItIsTold(t *testing.T) {
	friend := filepath.Join(t.TempDir(), "friend")
	fingerprint := strings.TrimSpace(run(t, nil, "identity", "--identity", friend).out)
	data := t.TempDir()
	p := start(t, nil, nil, "broker", "run", "--data-dir", data, "--listen", "127.0.0.1:0", "--queue", "/q", "--allow", fingerprint, "--admin", "127.0.0.1:0")
	run(t, nil, "queue", "list", "--wait", "1m", "--admin", filepath.Join(data, "admin.sock"), "--json").want(t, 0, `{"queues":[{"path":"/q","messages":0,"unsettled":0,"dead":0,"bytes":0,"consumers":0,"admitted":0,"admitted_bytes":0,"repeats":0,"refused":0,"delivered":0,"settled":0,"requeued":0,"dead_lettered":0}]}`+"\n", "")
	urls := strings.Fields(p.out.wait(t, func(s string) bool { return strings.Count(s, "\n") == 2 }))
	url := urls[0]
	// Programs of the same user need no key.
	run(t, strings.NewReader("x"), "request", urls[1], "--framing", "raw").want(t, 0, "", "")
	run(t, nil, "sub", urls[1], "--queue", "--count", "1").want(t, 0, "x\n", "")
	run(t, strings.NewReader("x"), "request", url, "--framing", "raw").want(t, 1, "", "")
	run(t, strings.NewReader("x"), "request", url, "--framing", "raw", "--identity", friend).want(t, 0, "", "")
	note := p.note.wait(t, contains("admin="))
	_, admin, _ := strings.Cut(note, "admin=")
	for path, want := range map[string]string{
		"/healthz": "alive", "/readyz": "ready", "/metrics": `weida_queue_admitted_messages_total{queue="/q"} 2`, "/api/v1/queues": `"messages":1`, "/api/v1/messages?path=/q": "404",
	} {
		resp, err := http.Get("http://" + strings.Fields(admin)[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		body := new(strings.Builder)
		if err := resp.Write(body); err != nil || !strings.Contains(body.String(), want) {
			t.Errorf("%s: %v, %.300s", path, err, body)
		}
		_ = resp.Body.Close() // it was read
	}
	p.stopped()
}

func TestBrokerConfigurations(t *testing.T) {
	example := run(t, nil, "broker", "config")
	file := filepath.Join(t.TempDir(), "b.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(example.out)
	run(t, nil, "broker", "config", "--check", file).want(t, 0, "", "no faults")
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nobody may connect": {"[[queue]]\npath = \"/q\"\n", []string{"trust: say who may connect"}},
		"no queue":           {"[trust]\nanybody = true\n", []string{"queue: there is none"}},
		"several at once, with lines": {
			"[broker]\nlisten = [\"here\"]\nmax_conections = 3\n[trust]\nanybody = true\nclients = [\"x\"]\n[[queue]]\npath = \"/q\"\ndurability = \"maybe\"\n[[queue]]\npath = \"q\"\nmax_attempts = 3\n[log]\nlevel = \"loud\"\n",
			[]string{
				"b.toml:2: broker.listen", "b.toml:3: broker.max_conections: unknown key", "b.toml:5: trust.anybody", "b.toml:9: queue[0].durability", "b.toml:11: queue[1].path",
				"b.toml:12: queue[1].max_attempts: needs dead_letter", "b.toml:14: log.level",
			},
		},
		"not TOML":         {"[broker\n", []string{"b.toml:2: "}},
		"not a size":       {"[[queue]]\nmax_bytes = \"many\"\n", []string{"b.toml:2: ", "is not a size"}},
		"not a time":       {"[broker]\nshutdown_timeout = \"soon\"\n", []string{"b.toml:2: ", "is not a duration"}},
		"not a pin":        {"[trust]\nclients = [\"x\"]\n[[queue]]\npath = \"/q\"\n", []string{"b.toml:1: trust: clients"}},
		"dead to itself":   {"[trust]\nanybody = true\n[[queue]]\npath = \"/q\"\nmax_attempts = 1\ndead_letter = \"/q\"\n", []string{"b.toml:6: queue[0].dead_letter"}},
		"unknown in queue": {"[trust]\nanybody = true\n[[queue]]\npath = \"/q\"\nsize = 1\n", []string{"b.toml:5: queue.size: unknown key"}},
	} {
		t.Run(name, func(t *testing.T) {
			write(c.text)
			r := run(t, nil, "broker", "config", "--check", file)
			for _, want := range c.want {
				if r.code != 2 || !strings.Contains(r.err, want) {
					t.Errorf("status %d, want 2 with %q in:\n%s", r.code, want, r.err)
				}
			}
			if got := strings.Count(r.err, "\n"); got != len(c.want) && len(c.want) != 2 {
				t.Errorf("%d lines, want %d:\n%s", got, len(c.want), r.err)
			}
		})
	}
}
