#!/usr/bin/env bash
# Runs the tests of Copilot sessions and of the language server's client on the newest
# Copilot CLI and language server that they are known to hold on, beside the pinned ones
# that every other test uses.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go node npm

server=1.550.0
bash ci/runtime.sh
platform=$(node -p 'process.platform + "-" + process.arch')
dir=$PWD/.runtime/newest
cli=$PWD/.runtime/node_modules/@github/copilot-$platform/copilot
found=$dir/node_modules/@github/copilot-language-server-$platform/copilot-language-server
if [ "$(cat "$dir/.version" 2>/dev/null)" != "$server" ]; then
	echo "installing Copilot language server $server from npm into .runtime/newest/ (140 MB)" >&2
	rm -rf "$dir"
	mkdir -p "$dir"
	npm install --prefix "$dir" --no-save --no-package-lock --ignore-scripts \
		--no-audit --no-fund --loglevel=error "@github/copilot-language-server-$platform@$server" >/dev/null
	echo "$server" >"$dir/.version"
fi
for program in "$cli" "$found"; do
	[ -x "$program" ] || {
		echo "ci/newest.sh: npm installed no ${program##*/} for this system" >&2
		exit 1
	}
done
COPILOT_CLI_PATH=$cli \
	go test -count=1 -timeout 40m -tags runtime "$@" ./internal/copilot
COPILOT_LANGUAGE_SERVER=$found \
	go test -count=1 -timeout 40m -tags runtime "$@" ./internal/langserver ./cmd/lsclient
