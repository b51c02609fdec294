package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/natssink/natstest"
	"github.com/weir-agent/weir/sinks/pgsink/pgtest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// optional are the sinks that a build can leave out.
var optional = []struct {
	sink    string // as in sink.type
	tag     string // the build tag that leaves it out
	client  string // the module that is then not in the binary
	example string // the least of a configuration
}{
	{"kafka", "nokafka", "github.com/twmb/", "[sink.kafka]\nbrokers = \"127.0.0.1:9092\"\ntopic = \"records\"\n"},
	{"nats", "nonats", "github.com/nats-io/", "[sink.nats]\nurl = \"nats://127.0.0.1:4222\"\nsubject = \"records\"\n"},
	{"postgres", "nopostgres", "github.com/jackc/", "[sink.postgres]\nurl = \"postgres://weir@127.0.0.1/weir\"\n"},
	{"s3", "nos3", "github.com/aws/", "[sink.s3]\nbucket = \"records\"\n"},
}

// TestSinksCanBeLeftOut: a build with the tags has no client of the engines, and says so where one is configured.
func TestSinksCanBeLeftOut(t *testing.T) {
	var tags []string
	for _, o := range optional {
		tags = append(tags, o.tag)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", strings.Join(tags, ","), ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", strings.Join(tags, ","), "-o", small, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, o := range optional {
		if strings.Contains("\n"+string(out), "\n"+o.client) {
			t.Errorf("with the tag %s there is still a package of %s", o.tag, o.client)
		}
		file := filepath.Join(t.TempDir(), "weir.toml")
		writeFile(t, file, "[sink]\ntype = \""+o.sink+"\"\n"+o.example)
		if out, err := exec.CommandContext(t.Context(), binary, "config", "check", "--config", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", o.sink, err, out)
		}
		text, err := exec.CommandContext(t.Context(), small, "config", "check", "--config", file).CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if want := file + `:2: sink.type: "` + o.sink + `" was left out of this build of weir (build tag ` + o.tag + ")"; exit == nil || exit.ExitCode() != 2 || !strings.Contains(string(text), want) {
			t.Errorf("%s without it: %v\n%s", o.sink, err, text)
		}
	}
}

// TestExamplesAreGood: each configuration in deploy/examples passes the check, and each optional sink has one.
func TestExamplesAreGood(t *testing.T) {
	files, err := filepath.Glob("../../deploy/examples/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		seen[strings.TrimSuffix(filepath.Base(file), ".toml")] = true
		if out, err := exec.CommandContext(t.Context(), binary, "config", "check", "--config", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
	for _, o := range optional {
		if !seen[o.sink] {
			t.Errorf("no example for %s", o.sink)
		}
	}
}

// engine is a server that records go to, for sinkLedger.
type engine struct {
	config string // the sections of the sink
	// repeats says that it keeps a record that comes twice: its readers tell it by the id.
	repeats bool
	kill    func()
	start   func()
	all     func() []sinktest.Stored // all that is in it, repeats included
}

const (
	sinkRounds = 12
	// settings that make what is tried again come soon.
	sinkDrain = "[drain]\nbackoff_max = \"200ms\"\nhold_interval = \"200ms\"\nbatch_records = 100\nlinger = \"5ms\"\n"
)

// sinkLedger kills weir and the engine at random moments under load: whatever was acked is in the engine in the end, and each record once where the
// engine drops repeats by its id.
func sinkLedger(t *testing.T, e engine) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	moment := func() {
		<-time.NewTimer(time.Duration(rng.IntN(80_000)) * time.Microsecond).C
	}
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "weir.toml")
	writeFile(t, file, sinkDrain+e.config)
	a := &acks{acked: map[string]bool{}}
	for round := range sinkRounds {
		p := startWeir(t, dir, "--config", file)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { a.produce(ctx, filepath.Join(dir, "weir.sock")) })
		moment()
		if round%2 == 0 {
			e.kill()
			moment()
			e.start()
			moment()
		}
		p.kill(t)
		cancel()
		wg.Wait()
	}
	p := startWeir(t, dir, "--config", file)
	awaitEmpty(t, dir)
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d\n%s", code, p.log)
	}
	payloads, ids, rows := map[string]bool{}, map[string]bool{}, e.all()
	for _, r := range rows {
		payloads[r.Payload], ids[r.ID] = true, true
	}
	lost := 0
	for payload := range a.acked {
		if !payloads[payload] {
			lost++
		}
	}
	t.Logf("%d kills of weir, %d of the engine, %d pushed, %d acked, %d stored, %d of them repeats, %d lost",
		sinkRounds, sinkRounds/2, a.next, len(a.acked), len(rows), len(rows)-len(ids), lost)
	if lost > 0 {
		t.Errorf("%d acked records are lost", lost)
	}
	if len(rows) != len(ids) && !e.repeats {
		t.Errorf("%d records are stored more than once", len(rows)-len(ids))
	}
	if len(ids) != len(payloads) {
		t.Errorf("%d ids for %d records: they do not tell repeats", len(ids), len(payloads))
	}
	if len(a.acked) < 10*sinkRounds {
		t.Errorf("only %d records were acked: the test did too little", len(a.acked))
	}
}

func TestLedgerOfKafka(t *testing.T) {
	server := kafkatest.Start(t, kafkatest.Config{})
	server.AddTopic("records", 3)
	sinkLedger(t, engine{
		config:  "[sink]\ntype = \"kafka\"\n[sink.kafka]\nbrokers = \"" + server.Address + "\"\ntopic = \"records\"\npartition = \"id\"\n",
		repeats: true, // the numbers of the client's requests end with the client
		kill:    server.Kill, start: server.Restart,
		all: func() []sinktest.Stored { return server.Stored("records") },
	})
}

func TestLedgerOfNATS(t *testing.T) {
	server := natstest.Start(t, "")
	js := natstest.Connect(t, server.URL())
	natstest.AddStream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Duplicates: time.Hour})
	sinkLedger(t, engine{
		config: "[sink]\ntype = \"nats\"\n[sink.nats]\nurl = \"" + server.URL() + "\"\nsubject = \"s.{shard}\"\n",
		kill:   server.Kill, start: server.Run,
		all: func() []sinktest.Stored { return natstest.Stored(t, js, "S") },
	})
}

func TestLedgerOfPostgres(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec("CREATE TABLE weir_records (record_id text PRIMARY KEY, payload text NOT NULL)")
	sinkLedger(t, engine{
		config: "[sink]\ntype = \"postgres\"\n[sink.postgres]\nurl = \"" + server.URL("weir") + "\"\npassword_file = \"" + pgtest.PasswordFile(t) + "\"\npayload_type = \"text\"\n",
		kill:   server.Kill, start: server.Restart,
		all: server.Stored,
	})
}

// TestHeldUntilReload: a sink that an operator must mend holds its records, says why without the password, and delivers them after a reload.
func TestHeldUntilReload(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec("CREATE TABLE right_name (record_id text PRIMARY KEY, payload bytea NOT NULL)")
	base := t.TempDir()
	dir, file := filepath.Join(base, "data"), filepath.Join(base, "weir.toml")
	text := func(table string) string {
		return sinkDrain + "[sink]\ntype = \"postgres\"\n[sink.postgres]\nurl = \"" + server.URL("weir") + "\"\npassword_file = \"" + pgtest.PasswordFile(t) + "\"\ntable = \"" + table + "\"\n"
	}
	writeFile(t, file, text("wrong_name"))
	p := startWeir(t, dir, "--config", file)
	pushText(t, dir, "one")
	st := await(t, dir, func(s shownStatus) bool { return s.Shards[0].Drain.State == "held" })
	if got := st.Shards[0].Drain.LastError; !strings.Contains(got, `relation "wrong_name" does not exist`) {
		t.Errorf("held with %q", got)
	}
	writeFile(t, file, text("right_name"))
	out, err := weirOn(t, dir, "reload")
	if want := "changed: sink.postgres.password_file, sink.postgres.table\n"; err != nil || out != want {
		t.Errorf("reload: %v, %q, want %q", err, out, want)
	}
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 && s.Shards[0].Drain.Delivered == 1 })
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if strings.Contains(p.log.String(), pgtest.Password) {
		t.Errorf("the log tells the password:\n%s", p.log)
	}
	if !strings.Contains(p.log.String(), "sink=postgres to=\"postgres://"+server.Address+"/weir wrong_name\"") {
		t.Errorf("the log does not tell where records go:\n%s", p.log)
	}
}
