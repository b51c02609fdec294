package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// frameOf returns a whole frame, failing the test if it cannot be written.
func frameOf(t testing.TB) func(b []byte, err error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func TestPreambleJudgesWhatIsThere(t *testing.T) {
	whole := frameOf(t)(AppendData(nil, &Data{ContentType: Some(strings.Repeat("c", 200))}, DefaultMaxHeaderBytes))
	for n := range 4 {
		if _, _, err := ParsePreamble(whole[:n], DefaultMaxHeaderBytes); err != ErrIncomplete {
			t.Errorf("%d bytes: got %v, want ErrIncomplete", n, err)
		}
	}
	p, n, err := ParsePreamble(whole, DefaultMaxHeaderBytes)
	if err != nil || p.Kind != KindData || n != 4 || n+p.HeaderBytes != len(whole) {
		t.Errorf("got %+v, %d, %v of %d bytes", p, n, err, len(whole))
	}
	tests := []struct {
		name string
		max  int
		want error
	}{
		{"at the cap", p.HeaderBytes, nil},
		{"above the cap", p.HeaderBytes - 1, ErrHeaderTooLarge},
		{"no header allowed", 0, ErrHeaderTooLarge},
		{"a cap below nothing", -1, ErrHeaderTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := ParsePreamble(whole, tt.max); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestKindAllowed(t *testing.T) {
	want := map[Half]string{Uni: "HELLO DATA SUBSCRIBE UNSUBSCRIBE CREDIT CURSOR", Initiating: "DATA", Reply: "DATA ERROR"}
	for half, names := range want {
		var got []string
		for k := range 256 {
			if Kind(k).Allowed(half) {
				got = append(got, Kind(k).String())
			}
		}
		if strings.Join(got, " ") != names {
			t.Errorf("half %d: got %v, want %s", half, got, names)
		}
	}
	if Kind(KindData).Allowed(Reply + 1) {
		t.Error("a frame may open what is no half")
	}
}

// What a writer is asked to write it refuses by the verdict that a reader would have.
func TestWritersRefuseWhatReadersDo(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	data := func(d Data) func() ([]byte, error) {
		return func() ([]byte, error) { return AppendData(nil, &d, DefaultMaxHeaderBytes) }
	}
	hello := func(h Hello) func() ([]byte, error) {
		return func() ([]byte, error) { return AppendHello(nil, &h) }
	}
	levels := func(l ...Level) Data { return Data{Report: Some(Report{ID: 1, Levels: l})} }
	tests := []struct {
		name  string
		write func() ([]byte, error)
		want  Verdict
	}{
		{"endpoint too long", data(Data{Endpoint: Some(long(513))}), ErrTooLong},
		{"content type too long", data(Data{ContentType: Some(long(257))}), ErrTooLong},
		{"traceparent too long", data(Data{Traceparent: Some(long(129))}), ErrTooLong},
		{"tracestate too long", data(Data{Tracestate: Some(long(513))}), ErrTooLong},
		{"topic too long", data(Data{Topic: Some(long(257))}), ErrTooLong},
		{"not UTF-8", data(Data{Topic: Some("\xff")}), ErrNotUTF8},
		{"achieved undefined", data(Data{Achieved: Some(Level(6))}), ErrValue},
		{"level reserved", data(levels(7)), ErrValue},
		{"levels descending", data(levels(3, 2)), ErrListOrder},
		{"too many levels", data(levels(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32)), ErrTooMany},
		{"extension key of the specification", data(Data{Extensions: []Extension{{Key: 63}}}), ErrKeyOrder},
		{"extension twice", data(Data{Extensions: []Extension{{Key: 64}, {Key: 64}}}), ErrKeyOrder},
		{"too many extensions", data(Data{Extensions: make([]Extension, MaxExtensions+1)}), ErrTooMany},
		{"header above the peer's cap", func() ([]byte, error) { return AppendData(nil, &Data{Endpoint: Some("/t")}, 4) }, ErrHeaderTooLarge},
		{"error above the peer's cap", func() ([]byte, error) { return AppendError(nil, Error{Code: 1}, 2) }, ErrHeaderTooLarge},
		{"message too long", func() ([]byte, error) { return AppendError(nil, Error{Message: Some(long(1025))}, 1<<20) }, ErrTooLong},
		{"filter", func() ([]byte, error) { return AppendSubscribe(nil, Subscription{"/t", "a*"}, 1<<20) }, ErrFilter},
		{"filter too long", func() ([]byte, error) { return AppendCredit(nil, Credit{Subscription{"/t", long(257)}, 1}, 1<<20) }, ErrTooLong},
		{"cursor above the peer's cap", func() ([]byte, error) { return AppendCursor(nil, 1, 0) }, ErrHeaderTooLarge},
		{"record level", func() ([]byte, error) { return AppendRecord(nil, Record{Level: 6}) }, ErrValue},
		{"record offset", func() ([]byte, error) { return AppendRecord(nil, Record{Level: 2, Offset: MaxVarint + 1}) }, ErrRange},
		{"varint", func() ([]byte, error) { return AppendVarint(nil, MaxVarint+1) }, ErrRange},
		{"too many versions", hello(Hello{Versions: make([]uint64, 65)}), ErrTooMany},
		{"requires more than it offers", hello(Hello{Required: Guarantees{Ordering: OrderDetect}}), ErrGuarantees},
		{"forbidden set", hello(Hello{Offered: Guarantees{Durability: Flushed}}), ErrGuarantees},
		{"undefined level", hello(Hello{Offered: Guarantees{Ordering: OrderTotal + 1}}), ErrValue},
		{"undefined acknowledgement", hello(Hello{Offered: Guarantees{Acknowledgement: AckNone - 1}}), ErrValue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if b, err := tt.write(); !errors.Is(err, tt.want) || len(b) != 0 {
				t.Errorf("got %x, %v, want %v", b, err, tt.want)
			}
		})
	}
}

func TestVerdictsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range Verdicts() {
		if seen[v.Name()] || v.Name() == "" || strings.Contains(v.Name(), "(") {
			t.Errorf("verdict %d has the name %q", v, v.Name())
		}
		seen[v.Name()] = true
	}
	if got := Verdict(0).Name(); got != "Verdict(0)" {
		t.Errorf("got %q for no verdict", got)
	}
}

// Nothing that is returned aliases the header, which a reader uses again.
func TestParseDataCopies(t *testing.T) {
	want := Data{
		Endpoint: Some("/endpoint"), Topic: Some("topic"), Producer: Some([ProducerBytes]byte{1, 2, 3}),
		Report: Some(Report{ID: 7, Levels: []Level{2, 16}}), Extensions: []Extension{{64, "value"}, {70, ""}},
	}
	f := frameOf(t)(AppendData(nil, &want, DefaultMaxHeaderBytes))
	_, n, err := ParsePreamble(f, DefaultMaxHeaderBytes)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseData(f[n:])
	if err != nil {
		t.Fatal(err)
	}
	clear(f)
	again := frameOf(t)(AppendData(nil, &got, DefaultMaxHeaderBytes))
	if wantFrame := frameOf(t)(AppendData(nil, &want, DefaultMaxHeaderBytes)); !bytes.Equal(again, wantFrame) {
		t.Errorf("after the buffer was used again, got %x, want %x", again, wantFrame)
	}
	if v, ok := got.Extension(64); !ok || v != "value" {
		t.Errorf("extension 64: got %q, %v", v, ok)
	}
	if _, ok := got.Extension(65); ok {
		t.Error("an extension that is not there was found")
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	for _, size := range []int{0, 50, 70, 400} { // lengths of one byte and of two
		d := &Data{Endpoint: Some("/" + strings.Repeat("e", size))}
		alone := frameOf(t)(AppendData(nil, d, DefaultMaxHeaderBytes))
		behind := frameOf(t)(AppendData([]byte("before"), d, DefaultMaxHeaderBytes))
		if want := append([]byte("before"), alone...); !bytes.Equal(behind, want) {
			t.Errorf("endpoint of %d: got %x, want %x", size+1, behind, want)
		}
	}
}

// Another reader of CBOR sees in a header what was written into it.
func TestCBORReadsWhatIsWritten(t *testing.T) {
	d := Data{
		Endpoint: Some("/t"), ContentLen: Some(uint64(math.MaxUint64)), ContentType: Some("text/plain"), Traceparent: Some("tp"), Tracestate: Some("ts"),
		Topic: Some("é"), Sequence: Some(uint64(1 << 32)), Producer: Some([ProducerBytes]byte{31: 9}), Achieved: Some(LevelStored),
		Report: Some(Report{ID: 5, Levels: []Level{2, 300}, FinalOnly: true}), DeliveryAttempt: 65536,
	}
	for i := range MaxExtensions {
		d.Extensions = append(d.Extensions, Extension{Key: uint64(64 + i), Value: strings.Repeat("v", i)})
	}
	f := frameOf(t)(AppendData(nil, &d, DefaultMaxHeaderBytes))
	_, n, err := ParsePreamble(f, DefaultMaxHeaderBytes)
	if err != nil {
		t.Fatal(err)
	}
	var got map[uint64]any
	if err := cbor.Unmarshal(f[n:], &got); err != nil {
		t.Fatal(err)
	}
	// Its own canonical encoding is ours.
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := mode.Marshal(got); err != nil || !bytes.Equal(b, f[n:]) {
		t.Errorf("cbor writes\n%x, %v, want\n%x", b, err, f[n:])
	}
	if len(got) != 13+MaxExtensions || got[0] != "/t" || got[12] != uint64(65536) {
		t.Errorf("cbor reads %v", got)
	}
}

func TestGuaranteesString(t *testing.T) {
	tests := []struct {
		g    Guarantees
		want string
	}{
		{Guarantees{}, "core"},
		{Guarantees{Acknowledgement: AckNone}, "1:0"},
		{Guarantees{Deduplication: DedupBounded, DedupWindowMillis: 500, ControlIsolated: true}, "5:1 6:500 9:1"},
	}
	for _, tt := range tests {
		if got := tt.g.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// Both sides of a link come to the same guarantees.
func TestNegotiationIsSymmetric(t *testing.T) {
	sets := []Guarantees{
		{},
		{Ordering: OrderDetect},
		{Ordering: OrderReassemble, Deduplication: DedupBounded, DedupWindowMillis: 9},
		{Deduplication: DedupDurable},
		{Acknowledgement: AckStored, Durability: Flushed},
		{Acknowledgement: AckStored},
		{Acknowledgement: AckReplicated, Replicas: 3, Durability: Flushed},
		{Acknowledgement: AckProcessed},
		{Acknowledgement: AckNone},
		{Backpressure: Coalesce},
		{ProducerNaming: NamedStably},
		{ControlIsolated: true},
	}
	for _, a := range sets {
		for _, b := range sets {
			x := &Hello{Versions: []uint64{0}, Offered: a, Required: Guarantees{Backpressure: a.Backpressure, ProducerNaming: a.ProducerNaming, Acknowledgement: min(a.Acknowledgement, 0)}}
			y := &Hello{Versions: []uint64{0}, Offered: b, Required: Guarantees{Backpressure: b.Backpressure, ProducerNaming: b.ProducerNaming, Acknowledgement: min(b.Acknowledgement, 0)}}
			here, errHere := Negotiate(x, y)
			there, errThere := Negotiate(y, x)
			if here.Guarantees != there.Guarantees || (errHere == nil) != (errThere == nil) {
				t.Errorf("%v and %v: got %v, %v on one side and %v, %v on the other", a, b, here.Guarantees, errHere, there.Guarantees, errThere)
			}
			if errHere == nil {
				if err := here.Guarantees.Check(); err != nil {
					t.Errorf("%v and %v agree on %v, which is forbidden: %v", a, b, here.Guarantees, err)
				}
			}
		}
	}
}

func TestErrorTexts(t *testing.T) {
	for r := NoCommonVersion; r <= NotReached; r++ {
		if got := (&NegotiateError{Reason: r, Dimension: "ordering"}).Error(); !strings.HasPrefix(got, "negotiate: ") || strings.Contains(got, r.Name()) {
			t.Errorf("%s: got %q", r.Name(), got)
		}
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMinimalHeaderAllocations(t *testing.T) {
	d := Data{Endpoint: Some("/t")}
	buf := make([]byte, 0, 64)
	var out []byte
	if n := testing.AllocsPerRun(100, func() { out, _ = AppendData(buf, &d, DefaultMaxHeaderBytes) }); n != 0 {
		t.Errorf("encoding allocates %v times", n)
	}
	header := out[3:]
	var err error
	if n := testing.AllocsPerRun(100, func() { _, err = ParseData(header) }); n > 1 || err != nil {
		t.Errorf("decoding allocates %v times, %v", n, err)
	}
}

func BenchmarkDataMinimal(b *testing.B) {
	d := Data{Endpoint: Some("/t")}
	buf := frameOf(b)(AppendData(make([]byte, 0, 64), &d, DefaultMaxHeaderBytes))
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = AppendData(buf[:0], &d, DefaultMaxHeaderBytes)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, n, _ := ParsePreamble(buf, DefaultMaxHeaderBytes)
			if _, err := ParseData(buf[n:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
