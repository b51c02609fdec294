#!/usr/bin/env bash
# needs: gcc cmake python3
# Builds and tests the C client: its tests and a fuzz run under the sanitizers, with and without zlib, the conformance vectors, a daemon that is killed.
set -euo pipefail
cd "$(dirname "$0")"
export WEIR_BIN="${WEIR_BIN:-$PWD/../../bin/weir}"
if [ -n "${WEIR_CONFORMANCE:-}" ]; then
	conformance=("$WEIR_CONFORMANCE")
else
	conformance=(go run ../../conformance/cmd/conformance)
fi
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S . -B "$build/sanitized" -DWEIR_SANITIZE=ON -DWEIR_USE_ZLIB=OFF >/dev/null
cmake --build "$build/sanitized" -- -s
ctest --test-dir "$build/sanitized" --output-on-failure
cmake -S . -B "$build/release" >/dev/null
cmake --build "$build/release" -- -s
ctest --test-dir "$build/release" --output-on-failure
echo "conformance vectors, C:"
"${conformance[@]}" run -strict -- "$build/sanitized/codec_lines"
"${conformance[@]}" run -strict -- "$build/release/codec_lines"
python3 tests/live.py "$build/release/live"
