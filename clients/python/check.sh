#!/usr/bin/env bash
# needs: python3
# Builds, type-checks and tests the Python client: conformance vectors, a server that misbehaves, a daemon that is killed.
set -euo pipefail
cd "$(dirname "$0")"
export WEIR_BIN="${WEIR_BIN:-$PWD/../../bin/weir}"

if [ ! -x .venv/bin/python ]; then
	python3 -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check '.[test]'
.venv/bin/mypy
if [ -n "${WEIR_CONFORMANCE:-}" ]; then
	conformance=("$WEIR_CONFORMANCE")
else
	conformance=(go run ../../conformance/cmd/conformance)
fi
echo "conformance vectors, Python:"
"${conformance[@]}" run -strict -- "$PWD/.venv/bin/python" "$PWD/tests/codec_lines.py"
.venv/bin/python -m pytest
