//go:build !nopostgres

package pgsink

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/pgsink/pgtest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// words writes outcomes in short: verdicts, and an i where the record is isolated.
func words(out []sinks.Outcome) string {
	var all []string
	for _, o := range out {
		w := o.Verdict.String()
		if o.Isolated {
			w += " i"
		}
		all = append(all, w)
	}
	return strings.Join(all, ", ")
}

// TestOutcomes: what a real server says to a batch, and what the sink makes of it.
func TestOutcomes(t *testing.T) {
	server := pgtest.Start(t, "max_connections = 60\n")
	server.Exec(
		"CREATE ROLE writer LOGIN PASSWORD '"+pgtest.Password+"'", "CREATE ROLE outsider LOGIN PASSWORD '"+pgtest.Password+"'",
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.payload = 'bad' THEN RAISE 'not that one'; END IF; RETURN NEW; END $$",
	)
	text, jsonb := Options{PayloadType: TypeText}, Options{PayloadType: TypeJSONB}
	for i, tc := range []struct {
		name   string
		table  string // its columns and what else its making needs; T stands for its name
		opts   Options
		batch  sinks.Batch
		want   string
		reason string // of the first that is not delivered: how it begins
	}{
		{"bytes", "(record_id text PRIMARY KEY, payload bytea)", Options{}, sinktest.BatchOf("a", "\x00\xff"), "delivered, delivered", ""},
		{"ids as bytes", "(record_id bytea PRIMARY KEY, payload bytea)", Options{IDType: TypeBytea}, sinktest.BatchOf("a", "b"), "delivered, delivered", ""},
		{"only permission to insert", "(record_id text PRIMARY KEY, payload bytea); GRANT INSERT ON T TO writer; GRANT SELECT (record_id) ON T TO writer", Options{URL: "writer"}, sinktest.BatchOf("a"), "delivered", ""},
		{"text that is none", "(record_id text PRIMARY KEY, payload text)", text, sinktest.BatchOf("a", "\xff", "b", "c\x00"), "delivered, reject i, delivered, reject i", "the record is not UTF-8, which a column of type text needs"},
		{"nothing but text that is none", "(record_id text PRIMARY KEY, payload text)", text, sinktest.BatchOf("a\x00"), "reject i", "the record has a byte 0"},
		{"JSON that is none", "(record_id text PRIMARY KEY, payload jsonb)", jsonb, sinktest.BatchOf(`{"a":1}`, `{"a":`, `[]`), "delivered, reject i, delivered", "the record is not JSON"},
		{"JSON that only the server refuses", "(record_id text PRIMARY KEY, payload jsonb)", jsonb, sinktest.BatchOf(`{"a":1}`, `{"a":"\u0000"}`), "reject, reject", "SQLSTATE 22P05: unsupported Unicode escape sequence"},
		{"the same, alone", "(record_id text PRIMARY KEY, payload jsonb)", jsonb, sinktest.BatchOf(`{"a":"\u0000"}`), "reject i", "SQLSTATE 22P05"},
		{"a value out of range", "(record_id text PRIMARY KEY, payload varchar(3))", text, sinktest.BatchOf("abc", "abcd"), "reject, reject", "SQLSTATE 22001: value too long"},
		{"a check", "(record_id text PRIMARY KEY, payload text CHECK (payload <> 'bad'))", text, sinktest.BatchOf("good", "bad"), "reject, reject", "SQLSTATE 23514: new row"},
		{"another unique constraint", "(record_id text PRIMARY KEY, payload text UNIQUE)", text, sinktest.BatchOf("a", "a"), "reject, reject", "SQLSTATE 23505: duplicate key"},
		{"a trigger", "(record_id text PRIMARY KEY, payload text); CREATE TRIGGER r BEFORE INSERT ON T FOR EACH ROW EXECUTE FUNCTION refuse()", text, sinktest.BatchOf("good", "bad"), "reject, reject", "SQLSTATE P0001: not that one"},
		{"a row too large for its index", "(record_id text PRIMARY KEY, payload bytea UNIQUE)", Options{}, sinktest.BatchOf("a", random(9000)), "reject, reject", "SQLSTATE 54000: index row"},
		{"no table", "", Options{Table: "nothing"}, sinktest.BatchOf("a", "b"), "hold, hold", `SQLSTATE 42P01: relation "nothing" does not exist`},
		{"no schema", "", Options{Table: "no.thing"}, sinktest.BatchOf("a"), "hold", `SQLSTATE 42P01: relation "no.thing" does not exist`},
		{"no column", "(record_id text PRIMARY KEY)", Options{}, sinktest.BatchOf("a"), "hold", "SQLSTATE 42703: column"},
		{"another type", "(record_id text PRIMARY KEY, payload int)", Options{}, sinktest.BatchOf("a"), "hold", "SQLSTATE 42804: column"},
		{"no unique constraint", "(record_id text, payload bytea)", Options{}, sinktest.BatchOf("a"), "hold", "SQLSTATE 42P10: there is no unique"},
		{"a column that nobody fills", "(record_id text PRIMARY KEY, payload bytea, more int NOT NULL)", Options{}, sinktest.BatchOf("a"), "hold", "SQLSTATE 23502: null value"},
		{"no partition", "(record_id text PRIMARY KEY, payload bytea) PARTITION BY RANGE (record_id)", Options{}, sinktest.BatchOf("a"), "hold", "SQLSTATE 23514: no partition"},
		{"no permission", "(record_id text PRIMARY KEY, payload bytea)", Options{URL: "outsider"}, sinktest.BatchOf("a"), "hold", "SQLSTATE 42501: permission denied for table"},
		{"no such user", "", Options{URL: "nobody"}, sinktest.BatchOf("a"), "hold", "SQLSTATE 28P01: password authentication failed"},
		{"a read-only database", "(record_id text PRIMARY KEY, payload bytea)", Options{URL: "weir?options=-c%20default_transaction_read_only%3Don"}, sinktest.BatchOf("a"), "retry", "SQLSTATE 25006: cannot execute INSERT"},
		{"a statement that takes too long for the server", "(record_id text PRIMARY KEY, payload text); CREATE FUNCTION T_f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$; CREATE TRIGGER r BEFORE INSERT ON T FOR EACH ROW EXECUTE FUNCTION T_f()", Options{PayloadType: TypeText, URL: "weir?statement_timeout=50"}, sinktest.BatchOf("a"), "retry", "SQLSTATE 57014: canceling statement"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := tc.opts
			if tc.table != "" {
				o.Table = fmt.Sprintf("outcome_%d", i)
				for sql := range strings.SplitSeq("CREATE TABLE T "+tc.table, "; CREATE") {
					if !strings.HasPrefix(sql, "CREATE") {
						sql = "CREATE" + sql
					}
					server.Exec(strings.NewReplacer(" T ", " "+o.Table+" ", " T_f", " "+o.Table+"_f").Replace(sql))
				}
			}
			user, query, _ := strings.Cut(o.URL, "?")
			if user == "" {
				user = "weir"
			}
			o.URL, o.PasswordFile = server.URL(user)+"?"+query, pgtest.PasswordFile(t)
			s := sinktest.Open(t, New, o)
			out := s.Deliver(t.Context(), tc.batch)
			if got := words(out); got != tc.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, tc.want, out)
			}
			for _, o := range out {
				if strings.Contains(o.Reason, pgtest.Password) {
					t.Errorf("the reason tells the password: %s", o.Reason)
				}
			}
			for _, o := range out {
				if o.Verdict != sinks.Delivered {
					at := max(0, strings.Index(o.Reason, "SQLSTATE"))
					if !strings.HasPrefix(o.Reason[at:], tc.reason) {
						t.Errorf("reason %q, want %q", o.Reason, tc.reason)
					}
					break
				}
			}
		})
	}
}

// random returns n bytes that do not compress.
func random(n int) string {
	b := make([]byte, n)
	x := uint64(1)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return string(b)
}

// TestNamesAreQuoted: names can be anything, and a payload is never part of the statement.
func TestNamesAreQuoted(t *testing.T) {
	server := pgtest.Start(t, "")
	const evil = `x"; DROP TABLE "keep"; --`
	server.Exec(`CREATE TABLE keep ()`, `CREATE SCHEMA "S s"`,
		`CREATE TABLE "S s"."x""; DROP TABLE ""keep""; --" ("the ""id""" text UNIQUE, "SELECT" text, "Seg ment" text, "index" bigint, "at" timestamptz)`)
	s := sinktest.Open(t, New, Options{
		URL: server.URL("weir"), PasswordFile: pgtest.PasswordFile(t), Table: "S s." + evil, IDColumn: `the "id"`, PayloadColumn: "SELECT", PayloadType: TypeText,
		SegmentColumn: "Seg ment", IndexColumn: "index", AppendedColumn: "at",
	})
	b := sinktest.BatchOf(`'); DROP TABLE keep; --`, `{"a","b",NULL}`, `\`)
	if got := words(s.Deliver(t.Context(), b)); got != "delivered, delivered, delivered" {
		t.Errorf("%s: %+v", got, s.Deliver(t.Context(), b))
	}
	conn := server.Connect()
	defer conn.Close(t.Context())
	found, err := conn.Query(t.Context(), `SELECT "the ""id""", "SELECT", "Seg ment", "index", "at" FROM "S s"."x""; DROP TABLE ""keep""; --" ORDER BY "index"`)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for ; found.Next(); i++ {
		var id, payload, segment string
		var index int64
		var at time.Time
		if err := found.Scan(&id, &payload, &segment, &index, &at); err != nil {
			t.Fatal(err)
		}
		r := b.Records[i]
		if id != r.ID.String() || payload != string(r.Payload) || segment != r.Segment || uint64(index) != r.Index || !at.Equal(r.Appended) {
			t.Errorf("row %d is %s, %q, %s, %d, %v; the record is %+v", i, id, payload, segment, index, at, r)
		}
	}
	if i != 3 || found.Err() != nil {
		t.Errorf("%d rows, %v", i, found.Err())
	}
	server.Exec("SELECT 1 FROM keep")
}

const plainTable = "CREATE TABLE weir_records (record_id text PRIMARY KEY, payload bytea NOT NULL)"

// TestServerAway: the server is not there, comes, is killed with statements under way, and comes again.
func TestServerAway(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec(plainTable)
	server.Kill()
	s := sinktest.Open(t, New, Options{URL: server.URL("weir"), PasswordFile: pgtest.PasswordFile(t)})
	b := sinktest.Batch("first", 10)
	if o := s.Deliver(t.Context(), b)[9]; o.Verdict != sinks.Retry || !strings.Contains(o.Reason, "connection refused") {
		t.Errorf("without a server: %+v", o)
	}
	server.Restart()
	sinktest.DeliverAll(t, s, b)
	all := sinktest.UnderKills(t, s, 3, server.Kill, server.Restart)
	sinktest.WantOnce(t, server.Stored(), append(all, b)...)
}

// TestNoAnswerInTime: a server that holds the statement is given up, and the batch is kept once all the same.
func TestNoAnswerInTime(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec(plainTable)
	s := sinktest.Open(t, New, Options{URL: server.URL("weir"), PasswordFile: pgtest.PasswordFile(t), Timeout: 200 * time.Millisecond})
	b := sinktest.Batch("b", 5)
	conn := server.Connect()
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE weir_records"); err != nil {
		t.Fatal(err)
	}
	for _, o := range s.Deliver(t.Context(), b) {
		if o.Verdict != sinks.Retry || o.Reason != "no answer in time" {
			t.Errorf("%+v", o)
		}
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.opts.Timeout = time.Minute
	sinktest.DeliverAll(t, s, b)
	sinktest.WantOnce(t, server.Stored(), b)
}

// TestFailureEndsConnections: after a failure that is no row's fault the next attempt begins with a new connection, as the server may be
// another one by then; a row that is refused costs no connection.
func TestFailureEndsConnections(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec("CREATE TABLE weir_records (record_id text PRIMARY KEY, payload text CHECK (payload <> 'bad'))")
	s := sinktest.Open(t, New, Options{URL: server.URL("weir"), PasswordFile: pgtest.PasswordFile(t), PayloadType: TypeText})
	for _, tc := range []struct {
		payload string
		want    sinks.Verdict
		idle    int
	}{{"good", sinks.Delivered, 1}, {"bad", sinks.Reject, 1}, {"other", sinks.Hold, 0}} {
		if tc.want == sinks.Hold {
			server.Exec("ALTER TABLE weir_records RENAME TO gone")
		}
		o := s.Deliver(t.Context(), sinktest.BatchOf(tc.payload))[0]
		s.mu.Lock()
		idle := len(s.idle)
		s.mu.Unlock()
		if o.Verdict != tc.want || idle != tc.idle {
			t.Errorf("%s: %+v and %d idle connections, want %v and %d", tc.payload, o, idle, tc.want, tc.idle)
		}
	}
}

// TestCloseEndsConnections: a server that holds keeps Close no more than a moment.
func TestCloseEndsConnections(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec(plainTable)
	proxy := sinktest.NewProxy(t, "tcp", server.Address)
	s := sinktest.Open(t, New, Options{URL: "postgres://weir@" + proxy.Address + "/weir", PasswordFile: pgtest.PasswordFile(t)})
	sinktest.DeliverAll(t, s, sinktest.Batch("before", 1))
	reached, release := proxy.Stall()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	if o := s.Deliver(ctx, sinktest.Batch("held", 1))[0]; o.Verdict != sinks.Retry {
		t.Errorf("%+v", o)
	}
	sinktest.CloseInTime(t, s, 10*time.Second) // the client alone would take 15
	if n := s.conns.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	if o := s.Deliver(t.Context(), sinktest.Batch("late", 1))[0]; o.Verdict != sinks.Retry {
		t.Errorf("after Close: %+v", o)
	}
}

// TestFilesAreReadAgain: a password file that is gone holds, and a new one counts from the next connection on.
func TestFilesAreReadAgain(t *testing.T) {
	server := pgtest.Start(t, "")
	server.Exec(plainTable)
	file := sinktest.File(t, "wrong")
	s := sinktest.Open(t, New, Options{URL: server.URL("weir"), PasswordFile: file})
	sinktest.ReadAgain(t, s, file, "28P01", "sink.postgres.password_file: open ", pgtest.Password)
}

func TestTLS(t *testing.T) {
	ours, other := sinktest.NewAuthority(t, "ours"), sinktest.NewAuthority(t, "other")
	server := pgtest.Start(t, "")
	cert, key := ours.Issue(t, "server")
	server.Write("server.crt", string(cert))
	server.Write("server.key", string(key))
	server.Write("ca.crt", string(ours.PEM))
	server.Write("data/postgresql.conf", fmt.Sprintf("ssl = on\nssl_cert_file = '%[1]s/server.crt'\nssl_key_file = '%[1]s/server.key'\nssl_ca_file = '%[1]s/ca.crt'\n", server.Dir))
	server.Write("data/pg_hba.conf", "local all all trust\nhostssl all certified all cert\nhostssl all all all scram-sha-256\n")
	server.Kill()
	server.Restart()
	server.Exec(plainTable, "CREATE ROLE certified LOGIN SUPERUSER")
	ca, clientCert, clientKey := ours.Files(t, "certified")
	otherCA, otherCert, otherKey := other.Files(t, "certified")
	for _, tc := range []struct {
		name, user, query string
		opts              Options
		want              sinks.Verdict
		reason            string
	}{
		{"authority given", "weir", "", Options{CAFile: ca}, sinks.Delivered, ""},
		{"client certificate", "certified", "", Options{CAFile: ca, CertFile: clientCert, KeyFile: clientKey}, sinks.Delivered, ""},
		{"unknown authority", "weir", "", Options{CAFile: otherCA}, sinks.Retry, "unknown authority"},
		{"no authority given", "weir", "?sslmode=verify-full", Options{}, sinks.Retry, "unknown authority"},
		{"client certificate of a stranger", "certified", "", Options{CAFile: ca, CertFile: otherCert, KeyFile: otherKey}, sinks.Hold, "28000"},
		{"no client certificate", "certified", "", Options{CAFile: ca}, sinks.Hold, "28000"},
		{"no TLS", "weir", "?sslmode=disable", Options{}, sinks.Hold, "28000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := tc.opts
			o.URL, o.PasswordFile = server.URL(tc.user)+tc.query, pgtest.PasswordFile(t)
			s := sinktest.Open(t, New, o)
			got := s.Deliver(t.Context(), sinktest.Batch(tc.name, 1))[0]
			if got.Verdict != tc.want || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("got %+v, want %v with %q", got, tc.want, tc.reason)
			}
		})
	}
}

// TestSplit: more than one statement may carry is to be halved; a single record is not.
func TestSplit(t *testing.T) {
	s := sinktest.Open(t, New, Options{URL: "postgres://weir@127.0.0.1:1/weir"})
	large := strings.Repeat("x", maxStatementBytes/2+1)
	if got := words(s.Deliver(t.Context(), sinktest.BatchOf(large, large))); got != "split, split" {
		t.Errorf("got %s", got)
	}
	if got := words(s.Deliver(t.Context(), sinktest.BatchOf(large+large))); got != "retry" {
		t.Errorf("one record: %s", got)
	}
}

// TestFilesMustBeThere: a sink whose files are missing is not made.
func TestFilesMustBeThere(t *testing.T) {
	for _, o := range []Options{{CAFile: "none"}, {PasswordFile: "none"}, {CertFile: "none", KeyFile: "none", CAFile: ""}} {
		o.URL = "postgres://weir@127.0.0.1:1/weir?sslmode=require"
		if s, err := New(o); err == nil || !strings.Contains(err.Error(), "none") {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				s.Close()
			}
		}
	}
}
