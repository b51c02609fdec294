package sinktest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

// Batch returns n records whose payloads, without line feeds, are unique to name.
func Batch(name string, n int) sinks.Batch {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"batch":%q,"n":%d}`, name, i)
	}
	return BatchOf(all...)
}

// BatchOf returns a batch of these payloads, the first of its segment.
func BatchOf(payloads ...string) sinks.Batch { return BatchAt(1, payloads...) }

// Sized returns a batch of records of these sizes in bytes.
func Sized(sizes ...int) sinks.Batch {
	all := make([]string, len(sizes))
	for i, n := range sizes {
		all[i] = strings.Repeat(string(rune('a'+i%26)), n)
	}
	return BatchOf(all...)
}

// BatchAt returns a batch of these payloads that follow the first-1 records before them in their segment.
func BatchAt(first int, payloads ...string) sinks.Batch {
	b := sinks.Batch{Attempt: 1}
	for i, p := range payloads {
		r := record.Record{Payload: []byte(p), Appended: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}
		r.Segment, r.Index = "shard_00/seg_00000001-00112233445566aa.wab.sealed", uint64(first+i)
		r.ID = record.ComputeID(r.Segment, r.Index, r.Payload)
		b.Records = append(b.Records, r)
	}
	b.Key = record.BatchKey(b.Records)
	return b
}

func payloads(batches ...sinks.Batch) [][]byte {
	var all [][]byte
	for _, b := range batches {
		for _, r := range b.Records {
			all = append(all, bytes.Clone(r.Payload))
		}
	}
	return all
}

// Open returns the sink that a package's New makes of o. The end of the test closes it.
func Open[O any, S sinks.Sink](t testing.TB, open func(O) (S, error), o O) S {
	t.Helper()
	s, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}
