#!/usr/bin/env bash
# needs: java javac mvn
# Builds and tests the Java client: conformance vectors, a server that misbehaves, a daemon that is killed.
set -euo pipefail
cd "$(dirname "$0")"
export WEIR_BIN="${WEIR_BIN:-$PWD/../../bin/weir}"

mvn -q -B test-compile
if [ -n "${WEIR_CONFORMANCE:-}" ]; then
	conformance=("$WEIR_CONFORMANCE")
else
	conformance=(go run ../../conformance/cmd/conformance)
fi
echo "conformance vectors, Java:"
"${conformance[@]}" run -strict -- java -cp target/classes:target/test-classes io.github.weiragent.CodecLines
mvn -B -ntp package | sed -n '/^\[INFO\] Tests run\|^\[ERROR\]\|^\[WARNING\]\|^ledger\|^one at\|^\[INFO\] BUILD/p'
