#!/usr/bin/env bash
# Runs the tests of Copilot sessions on the newest full Copilot CLI that they are
# known to hold on, beside the pinned runtime that every other test uses.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go node npm

version=1.0.102
dir=.runtime/newest
cli=$PWD/$dir/node_modules/@github/copilot-$(node -p 'process.platform + "-" + process.arch')/copilot
if [ "$(cat "$dir/.version" 2>/dev/null)" != "$version" ]; then
	echo "installing Copilot CLI $version from npm into $dir/ (190 MB)" >&2
	mkdir -p "$dir"
	npm install --prefix "$dir" --no-save --no-package-lock --ignore-scripts \
		--no-audit --no-fund --loglevel=error "@github/copilot@$version" >/dev/null
	[ -x "$cli" ] || { echo "ci/newest.sh: npm installed no Copilot CLI for this system" >&2; exit 1; }
	echo "$version" >"$dir/.version"
fi
COPILOT_CLI_PATH=$cli go test -count=1 -timeout 40m -tags runtime "$@" ./internal/copilot
