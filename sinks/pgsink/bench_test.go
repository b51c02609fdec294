//go:build !nopostgres

package pgsink

import (
	"testing"

	"github.com/weir-agent/weir/sinks/pgsink/pgtest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// BenchmarkDeliver delivers batches to a real server.
func BenchmarkDeliver(b *testing.B) {
	server := pgtest.Start(b, "")
	server.Exec(plainTable)
	s := sinktest.Open(b, New, Options{URL: server.URL("weir"), PasswordFile: pgtest.PasswordFile(b)})
	sinktest.Bench(b, s)
}
