//go:build !nopostgres

package pgsink

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-agent/weir/sinks/pgsink/pgtest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	server := pgtest.Start(t, "")
	n := 0
	for _, kind := range []string{TypeBytea, TypeText, TypeJSONB} {
		t.Run(kind, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
				n++
				table := fmt.Sprintf("suite_%d", n)
				server.Exec(fmt.Sprintf("CREATE TABLE %s (n bigserial, record_id text PRIMARY KEY, payload %s NOT NULL)", table, kind))
				proxy := sinktest.NewProxy(t, "tcp", server.Address)
				s := sinktest.Open(t, New, Options{
					URL: "postgres://weir@" + proxy.Address + "/weir", PasswordFile: pgtest.PasswordFile(t), Table: table, PayloadType: kind,
				})
				return sinktest.Fixture{
					Sink: s, Once: true, Stall: proxy.Stall,
					Got: func() [][]byte { return payloads(t, server, table, kind) },
				}
			})
		})
	}
}

// payloads returns what the table has, in the order in which it came.
func payloads(t *testing.T, server *pgtest.Server, table, kind string) [][]byte {
	t.Helper()
	sql := "SELECT payload FROM " + table + " ORDER BY n"
	switch kind {
	case TypeText:
		sql = "SELECT convert_to(payload, 'UTF8') FROM " + table + " ORDER BY n"
	case TypeJSONB: // as sinktest writes its payloads
		sql = `SELECT convert_to('{"batch":' || (payload->'batch')::text || ',"n":' || (payload->'n')::text || '}', 'UTF8') FROM ` + table + " ORDER BY n"
	}
	conn := server.Connect()
	defer conn.Close(t.Context())
	found, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
