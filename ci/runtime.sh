#!/usr/bin/env bash
# Installs the pinned Copilot runtime, the pinned Copilot language server and the
# npm packages of the tests into .runtime/. Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need node npm

src=test/e2e
stamp=.runtime/.stamp
want=$(cat "$src/package.json" "$src/package-lock.json" | cksum)-$(uname -sm)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0

echo "installing the Copilot runtime and language server from npm into .runtime/ (280 MB)" >&2
mkdir -p .runtime
rm -rf "$stamp" .runtime/node_modules
cp "$src/package.json" "$src/package-lock.json" .runtime/
npm ci --prefix .runtime --include=dev --include=optional --ignore-scripts \
	--no-audit --no-fund --loglevel=error >/dev/null
ls .runtime/node_modules/@github/copilot-sdk-*/prebuilds/*/copilot-runtime >/dev/null 2>&1 || {
	echo "ci/runtime.sh: npm installed no Copilot runtime for $(uname -sm): put a copilot CLI on PATH, or name one in COPILOT_CLI_PATH" >&2
	exit 1
}
ls .runtime/node_modules/@github/copilot-language-server-*/copilot-language-server* >/dev/null 2>&1 || {
	echo "ci/runtime.sh: npm installed no Copilot language server for $(uname -sm): name one in COPILOT_LANGUAGE_SERVER" >&2
	exit 1
}
echo "$want" >"$stamp"
