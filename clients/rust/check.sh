#!/usr/bin/env bash
# needs: cargo
# Builds and tests the Rust client: its tests and documentation, the conformance vectors, a daemon that is killed.
set -euo pipefail
cd "$(dirname "$0")"
export WEIR_BIN="${WEIR_BIN:-$PWD/../../bin/weir}"
if [ -n "${WEIR_CONFORMANCE:-}" ]; then
	conformance=("$WEIR_CONFORMANCE")
else
	conformance=(go run ../../conformance/cmd/conformance)
fi
export RUSTFLAGS="-D warnings"
cargo build --quiet --release --examples
cargo test --quiet --release -- --test-threads=1 --nocapture
echo "conformance vectors, Rust:"
"${conformance[@]}" run -strict -- target/release/examples/codec_lines
