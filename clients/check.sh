#!/usr/bin/env bash
# Builds and tests every client that has a check.sh and whose toolchain is installed; names what it left out.
# With CI=true a missing toolchain is a failure. The line "# needs: TOOL..." of a check.sh names the commands it needs.
# bin/weir has to be built.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd .. && pwd)
export WEIR_BIN="${WEIR_BIN:-$root/bin/weir}"
if [ ! -x "$WEIR_BIN" ]; then
	echo "missing: $WEIR_BIN (run: make build)" >&2
	exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$root" && go build -o "$tmp/conformance" ./conformance/cmd/conformance)
export WEIR_CONFORMANCE="$tmp/conformance"

left_out=()
for check in */check.sh; do
	lang=${check%/check.sh}
	missing=()
	for tool in $(sed -n 's/^# needs: //p' "$check"); do
		command -v "$tool" >/dev/null || missing+=("$tool")
	done
	if [ ${#missing[@]} -gt 0 ]; then
		left_out+=("$lang, for want of ${missing[*]}")
		continue
	fi
	echo "== $lang"
	"$check"
done
for what in ${left_out[@]+"${left_out[@]}"}; do
	echo "left out: $what" >&2
done
if [ "${CI:-}" = true ] && [ ${#left_out[@]} -gt 0 ]; then
	exit 1
fi
