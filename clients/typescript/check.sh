#!/usr/bin/env bash
# needs: node npm
# Builds and tests the TypeScript client: conformance vectors, a server that misbehaves, a daemon that is killed.
set -euo pipefail
cd "$(dirname "$0")"
export WEIR_BIN="${WEIR_BIN:-$PWD/../../bin/weir}"

npm ci --silent --ignore-scripts
rm -rf dist build
npx --no-install tsc -p tsconfig.json
npx --no-install tsc -p tsconfig.test.json
if [ -n "${WEIR_CONFORMANCE:-}" ]; then
	conformance=("$WEIR_CONFORMANCE")
else
	conformance=(go run ../../conformance/cmd/conformance)
fi
echo "conformance vectors, TypeScript:"
"${conformance[@]}" run -strict -- node "$PWD/build/test/codec-lines.js"
# Where the pattern meets nothing the run fails.
node --test build/test/*.test.js
# What a user gets is in the package.
npm pack --dry-run --json --ignore-scripts | grep -q '"dist/index.d.ts"'
