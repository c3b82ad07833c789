#!/usr/bin/env bash
# Runs the tests of Copilot sessions and of the language server's client on the newest
# Copilot CLI and language server that they are known to hold on, beside the pinned ones
# that every other test uses.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go node npm

cli=1.0.102
server=1.550.0
platform=$(node -p 'process.platform + "-" + process.arch')
dir=$PWD/.runtime/newest
packages=$dir/node_modules/@github
if [ "$(cat "$dir/.version" 2>/dev/null)" != "$cli $server" ]; then
	echo "installing Copilot CLI $cli and language server $server from npm into .runtime/newest/ (350 MB)" >&2
	mkdir -p "$dir"
	npm install --prefix "$dir" --no-save --no-package-lock --ignore-scripts \
		--no-audit --no-fund --loglevel=error "@github/copilot@$cli" \
		"@github/copilot-language-server-$platform@$server" >/dev/null
	for program in "copilot-$platform/copilot" "copilot-language-server-$platform/copilot-language-server"; do
		[ -x "$packages/$program" ] || {
			echo "ci/newest.sh: npm installed no $program for this system" >&2
			exit 1
		}
	done
	echo "$cli $server" >"$dir/.version"
fi
COPILOT_CLI_PATH=$packages/copilot-$platform/copilot \
	go test -count=1 -timeout 40m -tags runtime "$@" ./internal/copilot
COPILOT_LANGUAGE_SERVER=$packages/copilot-language-server-$platform/copilot-language-server \
	go test -count=1 -timeout 40m -tags runtime "$@" ./internal/langserver ./cmd/lsclient
