//go:build !nopostgres

package pgsink

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

// column is what the statement fills.
type column struct {
	name string
	kind string // of the parameter, which is an array of it
	cast string // of each value to what the column has; empty for none
	args func(rs []record.Record) any
}

// columns returns what o wants to be filled, the id and the payload first.
func (o *Options) columns() []column {
	id := column{name: o.IDColumn, kind: "text", args: func(rs []record.Record) any {
		return each(rs, func(r *record.Record) string { return r.ID.String() })
	}}
	if o.IDType == TypeBytea {
		id.kind, id.args = "bytea", func(rs []record.Record) any {
			return each(rs, func(r *record.Record) []byte { return r.ID[:] })
		}
	}
	payload := column{name: o.PayloadColumn, kind: "text", args: func(rs []record.Record) any {
		return each(rs, func(r *record.Record) string { return string(r.Payload) })
	}}
	switch o.PayloadType {
	case TypeJSONB:
		payload.cast = "::jsonb"
	case TypeBytea:
		payload.kind, payload.args = "bytea", func(rs []record.Record) any {
			return each(rs, func(r *record.Record) []byte { return r.Payload })
		}
	}
	all := []column{id, payload}
	for _, c := range []column{
		{o.SegmentColumn, "text", "", func(rs []record.Record) any {
			return each(rs, func(r *record.Record) string { return r.Segment })
		}},
		{o.IndexColumn, "bigint", "", func(rs []record.Record) any {
			return each(rs, func(r *record.Record) int64 { return int64(r.Index) })
		}},
		{o.AppendedColumn, "timestamptz", "", func(rs []record.Record) any {
			return each(rs, func(r *record.Record) time.Time { return r.Appended })
		}},
	} {
		if c.name != "" {
			all = append(all, c)
		}
	}
	return all
}

func each[V any](rs []record.Record, value func(r *record.Record) V) []V {
	out := make([]V, len(rs))
	for i := range rs {
		out[i] = value(&rs[i])
	}
	return out
}

// statement is the one statement of the sink: it takes an array for each column, so that it is the same for any number of rows.
// The conflict is named by its column: one on any other constraint must not pass for a repeat.
func statement(o *Options) string {
	var names, from, values []string
	for i, c := range o.columns() {
		names = append(names, pgx.Identifier{c.name}.Sanitize())
		from = append(from, fmt.Sprintf("$%d::%s[]", i+1, c.kind))
		values = append(values, fmt.Sprintf("r.c%d%s", i+1, c.cast))
	}
	var as []string
	for i := range names {
		as = append(as, fmt.Sprintf("c%d", i+1))
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) AS r(%s) ON CONFLICT (%s) DO NOTHING",
		pgx.Identifier(strings.Split(o.Table, ".")).Sanitize(), strings.Join(names, ", "), strings.Join(values, ", "), strings.Join(from, ", "), strings.Join(as, ", "), names[0])
}

// rows are the arguments of one statement.
type rows struct {
	n     int
	bytes int // of their payloads
	args  []any
}

// rows returns those of the records that the payload's type can hold, and puts a Reject into out for each other one.
func (s *Sink) rows(records []record.Record, out []sinks.Outcome) rows {
	var r rows
	fit := records
	for i := range records {
		fault := s.opts.unfit(records[i].Payload)
		if fault == "" {
			r.bytes += len(records[i].Payload)
			if len(fit) < len(records) {
				fit = append(fit, records[i])
			}
			continue
		}
		out[i] = sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Reason: fault}
		if len(fit) == len(records) {
			fit = append(make([]record.Record, 0, len(records)-1), records[:i]...)
		}
	}
	r.n = len(fit)
	for _, c := range s.opts.columns() {
		r.args = append(r.args, c.args(fit))
	}
	return r
}

// unfit tells why a payload cannot be a value of the payload's type. Of JSON the server refuses more, such as \u0000 in a string.
func (o *Options) unfit(payload []byte) string {
	switch {
	case o.PayloadType == TypeBytea:
		return ""
	case !utf8.Valid(payload):
		return "the record is not UTF-8, which a column of type " + o.PayloadType + " needs"
	case bytes.IndexByte(payload, 0) >= 0:
		return "the record has a byte 0, which a column of type " + o.PayloadType + " cannot hold"
	case o.PayloadType == TypeJSONB && !json.Valid(payload):
		return "the record is not JSON"
	}
	return ""
}
