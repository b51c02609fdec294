#!/usr/bin/env bash
# needs: go
# Tests the Go client: its own tests, and the conformance runner, which drives the client itself through a socket.
set -euo pipefail
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go test ./...
go build -o "$tmp/lines" ./internal/lines
echo "conformance vectors, Go client (requests that it reads and replies that it sends are skipped: a client has neither):"
if [ -n "${WEIR_CONFORMANCE:-}" ]; then
	"$WEIR_CONFORMANCE" run -- "$tmp/lines"
else
	go run ../../conformance/cmd/conformance run -- "$tmp/lines"
fi
