package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestBadFiles: each file of testdata/bad gives all the faults that stand beside it, each in a line with the file and, where a
// key of the file is at fault by itself, its line.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".toml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load(Source{File: file})
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for w := range strings.Lines(string(want)) {
				w = strings.TrimSuffix(w, "\n")
				if w[0] >= '0' && w[0] <= '9' {
					w = file + ":" + w
				}
				found := false
				for _, l := range lines {
					found = found || strings.HasPrefix(l, w)
				}
				if !found {
					t.Errorf("no line begins with %q:\n%v", w, err)
				}
			}
			if n := strings.Count(string(want), "\n"); len(lines) != n {
				t.Errorf("%d lines, want %d:\n%v", len(lines), n, err)
			}
		})
	}
}

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, []byte("[wab]\ndir = \"file\"\nshards = 2\nsegment_bytes = \"1MiB\"\n[log]\nlevel = \"warn\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(Source{
		File:  file,
		Env:   []string{"WEIR_WAB_SHARDS=3", "WEIR_DATA_DIR=env", "WEIR_SOCKET_PEER_UIDS=1, 2", "WEIR_LOG_LEVEL=", "WEIR_SOMETHING=else", "PATH=/bin"},
		Flags: map[string]string{"wab.dir": "flag"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.WAB.Dir != "flag" || got.WAB.Shards != 3 || got.WAB.SegmentBytes != 1<<20 || got.Log.Level != "warn" {
		t.Errorf("got %+v", got.WAB)
	}
	if !reflect.DeepEqual(got.Socket.PeerUIDs, []uint32{1, 2}) {
		t.Errorf("peer_uids %v", got.Socket.PeerUIDs)
	}
	if got.Socket.Path != filepath.Join("flag", "weir.sock") || got.Sink.File.Path != filepath.Join("flag", "delivered.jsonl") {
		t.Errorf("paths do not follow the data folder: %q, %q", got.Socket.Path, got.Sink.File.Path)
	}
}

// TestTheSinksAddress: the short flag and variable of an address are those of the sink in force, wherever that was chosen.
func TestTheSinksAddress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	pin := "weida://sha256:" + strings.Repeat("a", 64)
	text := "[sink]\ntype = \"weida\"\n[sink.weida]\nurl = \"" + pin + "@file:1/q\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name        string
		src         Source
		weida, http string
	}{
		{"file", Source{File: file}, pin + "@file:1/q", ""},
		{"flag over file", Source{File: file, Flags: map[string]string{"sink.http.url": pin + "@flag:1/q"}}, pin + "@flag:1/q", ""},
		{"variable over file", Source{File: file, Env: []string{"WEIR_SINK_URL=" + pin + "@env:1/q"}}, pin + "@env:1/q", ""},
		{
			"type and address by variables",
			Source{Env: []string{"WEIR_SINK_URL=" + pin + "@env:1/q", "WEIR_SINK=weida"}},
			pin + "@env:1/q", "",
		},
		{
			"type by flag, address by variable",
			Source{File: file, Env: []string{"WEIR_SINK_URL=http://env/", "WEIR_SINK_TYPE=weida"}, Flags: map[string]string{"sink.type": "http"}},
			pin + "@file:1/q", "http://env/",
		},
		{"a sink without an address", Source{Env: []string{"WEIR_SINK_URL=http://env/"}}, "", "http://env/"},
		{
			"the long variable says which",
			Source{File: file, Env: []string{"WEIR_SINK_HTTP_URL=http://env/"}},
			pin + "@file:1/q", "http://env/",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Load(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			if got.Sink.Weida.URL != tc.weida || got.Sink.HTTP.URL != tc.http {
				t.Errorf("weida %q, http %q; want %q, %q", got.Sink.Weida.URL, got.Sink.HTTP.URL, tc.weida, tc.http)
			}
		})
	}
}

func TestBadEnvironmentAndFlags(t *testing.T) {
	_, err := Load(Source{Env: []string{"WEIR_DRAIN_LINGER=soon", "WEIR_DRAIN_LINGR=1s"}, Flags: map[string]string{"wab.dir": ""}})
	if err == nil || !strings.Contains(err.Error(), "WEIR_DRAIN_LINGER: drain.linger: ") || !strings.Contains(err.Error(), "--data-dir: wab.dir: is empty") ||
		!strings.Contains(err.Error(), "WEIR_DRAIN_LINGR: no key has this variable: did you mean WEIR_DRAIN_LINGER?") {
		t.Errorf("got %v", err)
	}
}

func TestDefaultsAreGood(t *testing.T) {
	got, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Drain.Linger != 200*time.Millisecond || got.Socket.MaxConnections != 1024 || got.Admin.Listen != "127.0.0.1:9185" {
		t.Errorf("got %+v", got)
	}
}

// TestReferenceIsWhole: each key has its help, and no help is of a key that is gone.
func TestReferenceIsWhole(t *testing.T) {
	var told []string
	for _, k := range Reference() {
		told = append(told, k.Name)
		if !strings.HasSuffix(k.Help, ".") {
			t.Errorf("%s: the help is no sentence: %q", k.Name, k.Help)
		}
		if !slices.ContainsFunc(sections, func(s Section) bool { return s.Name == sectionOf(k.Name) }) {
			t.Errorf("%s: its section is not in the list", k.Name)
		}
	}
	slices.Sort(told)
	if want := Keys(); !slices.Equal(told, want) {
		t.Errorf("the reference has %q\nthere are       %q", told, want)
	}
}

// TestInitIsTheDefaults: the file that init writes parses as it is, and with every key uncommented, and is the default in both forms.
func TestInitIsTheDefaults(t *testing.T) {
	var b strings.Builder
	if err := Init(&b); err != nil {
		t.Fatal(err)
	}
	commented := regexp.MustCompile(`(?m)^#([a-z_0-9]+ = )`)
	if n := len(commented.FindAllString(b.String(), -1)); n != len(Keys()) {
		t.Errorf("%d keys, want %d", n, len(Keys()))
	}
	want, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"as it is": b.String(), "uncommented": commented.ReplaceAllString(b.String(), "$1")} {
		file := filepath.Join(t.TempDir(), "weir.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(Source{File: file})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if changed := Changed(&want, &got); len(changed) != 0 {
			t.Errorf("%s: other than the defaults: %v", name, changed)
		}
	}
}

// TestHTTPDefaultsAreTheSinks: the defaults that are shown are those that the sink would fill in.
func TestHTTPDefaultsAreTheSinks(t *testing.T) {
	text, err := os.ReadFile("../../../../sinks/httpsink/options.go")
	if err != nil {
		t.Fatal(err)
	}
	d := Default().Sink.HTTP
	for name, v := range map[string]time.Duration{
		"ConnectTimeout": d.ConnectTimeout, "TLSTimeout": d.TLSTimeout, "Timeout": d.Timeout, "AnswerTimeout": d.AnswerTimeout,
		"IdleTimeout": d.IdleTimeout, "MaxConnectionAge": d.MaxConnectionAge, "RetryAfterMax": d.RetryAfterMax,
	} {
		m := regexp.MustCompile(`default` + name + `\s*= (?:(\d+) \* )?time\.(Second|Minute)`).FindSubmatch(text)
		if m == nil {
			t.Errorf("no default%s in the sink", name)
			continue
		}
		want := map[string]time.Duration{"Second": time.Second, "Minute": time.Minute}[string(m[2])]
		if n, err := strconv.Atoi(string(m[1])); err == nil {
			want *= time.Duration(n)
		}
		if v != want {
			t.Errorf("%s is %v, the sink has %v", name, v, want)
		}
	}
}

func TestSettingsTellOriginsAndNoSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	text := "[sink]\ntype = \"http\"\n[sink.http]\nurl = \"https://u:p4ss@h/x?token=t0ken&a=b\"\n[sink.http.headers]\nX-Key = \"s3cret\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Settings(Source{File: file, Env: []string{"WEIR_LOG_LEVEL=debug"}, Flags: map[string]string{"wab.dir": "d"}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Setting{}
	for _, s := range all {
		got[s.Key] = s
		for _, secret := range []string{"p4ss", "t0ken", "s3cret"} {
			if strings.Contains(s.Value, secret) {
				t.Errorf("%s shows a secret: %s", s.Key, s.Value)
			}
		}
	}
	for _, want := range []Setting{
		{"sink.http.url", `"https://h/x?token=(hidden)&a=(hidden)"`, file + ":4"},
		{"sink.http.headers", `{ "X-Key" = "(hidden)" }`, file + ":5"},
		{"log.level", `"debug"`, "WEIR_LOG_LEVEL"},
		{"wab.dir", `"d"`, "--data-dir"},
		{"socket.path", `"d/weir.sock"`, "default"},
		{"wab.segment_bytes", `"64MiB"`, "default"},
		{"drain.backoff_max", `"1m"`, "default"},
	} {
		if got[want.Key] != want {
			t.Errorf("got %+v, want %+v", got[want.Key], want)
		}
	}
}

// TestAddressesAreShownWithoutSecrets: also those of a configuration that is at fault because of them.
func TestAddressesAreShownWithoutSecrets(t *testing.T) {
	all, err := Settings(Source{Env: []string{"WEIR_SINK=nats", "WEIR_SINK_NATS_URL=nats://u:p4ss@a:4222, tls://t0ken@b", "WEIR_SINK_NATS_SUBJECT=s"}})
	if err == nil || strings.Contains(err.Error(), "p4ss") || strings.Contains(err.Error(), "t0ken") {
		t.Errorf("error %v", err)
	}
	for _, s := range all {
		if s.Key == "sink.nats.url" && s.Value != `"nats://a:4222,tls://b"` {
			t.Errorf("shown as %s", s.Value)
		}
	}
}

// TestBrokersAreShownWithoutSecrets: a password that was put where none belongs is not shown.
func TestBrokersAreShownWithoutSecrets(t *testing.T) {
	for brokers, want := range map[string]string{"a:9092,u:p4ss@b:9092": hidden, "a:9092, b:9092": "a:9092, b:9092"} {
		all, err := Settings(Source{Env: []string{"WEIR_SINK=kafka", "WEIR_SINK_KAFKA_BROKERS=" + brokers, "WEIR_SINK_KAFKA_TOPIC=s"}})
		if (err != nil) != (want == hidden) || err != nil && strings.Contains(err.Error(), "p4ss") {
			t.Errorf("error %v", err)
		}
		for _, s := range all {
			if s.Key == "sink.kafka.brokers" && s.Value != `"`+want+`"` {
				t.Errorf("shown as %s", s.Value)
			}
		}
	}
}

// TestAddressOfSeveralHosts: where net/url cannot read it, nothing of it is shown.
func TestAddressOfSeveralHosts(t *testing.T) {
	for text, want := range map[string]string{"postgresql://u:p@a:1,b:2,c/d": hidden, "postgres://u:p@a:1,b:2/d": "postgres://a:1,b:2/d", "postgres://u@a:1/d?sslmode=x": "postgres://a:1/d?sslmode=" + hidden} {
		if got := SafeURL(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}

func TestChanged(t *testing.T) {
	a, b := Default(), Default()
	b.Drain.RateLimit, b.Socket.PeerUIDs, b.Sink.HTTP.Headers = 5, []uint32{1}, map[string]string{"A": "b"}
	var got []string
	for _, k := range Changed(&a, &b) {
		got = append(got, k.Name)
	}
	if want := []string{"socket.peer_uids", "drain.rate_limit", "sink.http.headers"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEveryKeyCanBeSet sets each key by its variable to the default as text, so that no field is of a kind that cannot be configured.
func TestEveryKeyCanBeSet(t *testing.T) {
	for _, key := range Keys() {
		cfg := Default()
		field := keys(reflect.ValueOf(&cfg).Elem(), "")[key]
		text := ""
		switch field.Type() {
		case sizeType:
			text = "1MiB"
		case durationType:
			text = "1s"
		default:
			switch field.Kind() {
			case reflect.String:
				text = "x"
			case reflect.Bool:
				text = "true"
			case reflect.Map:
				continue // only in a file
			default:
				text = "1"
			}
		}
		if err := set(field, text); err != nil {
			t.Errorf("%s = %q: %v", key, text, err)
		}
	}
}

func TestSizeIsWritten(t *testing.T) {
	for size, want := range map[Size]string{0: "0B", 1000: "1000B", 64 << 20: "64MiB", 3 << 30: "3GiB"} {
		if size.String() != want {
			t.Errorf("String of %d is %q, want %q", int64(size), size.String(), want)
		}
	}
	for size, want := range map[Size]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1<<20 - 1: "1024 KiB", 1000 << 20: "1000 MiB", 10 << 30: "10 GiB"} {
		if size.Human() != want {
			t.Errorf("Human of %d is %q, want %q", int64(size), size.Human(), want)
		}
	}
}
