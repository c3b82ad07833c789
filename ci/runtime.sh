#!/usr/bin/env bash
# Installs what test/e2e/package.json pins into .runtime/: the Copilot runtime, CLI and
# language server, other agents, and the npm packages of the tests. Does nothing when they
# are there already. With the argument demo it installs the Copilot runtime only.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need node npm

src=test/e2e
if [ "${1-}" = demo ]; then
	compgen -G '.runtime/node_modules/@github/copilot-sdk-*/prebuilds/*/copilot-runtime' >/dev/null && exit 0
	sdk=@github/copilot-sdk@$(node -p 'require("./test/e2e/package.json").devDependencies["@github/copilot-sdk"]')
	echo "installing the Copilot runtime from npm into .runtime/ (130 MB)" >&2
	exec npm install --prefix .runtime --no-save --no-package-lock --ignore-scripts \
		--no-audit --no-fund --loglevel=error "$sdk" >/dev/null
fi
stamp=.runtime/.stamp
want=$(cat "$src/package.json" "$src/package-lock.json" | cksum)-$(uname -sm)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0

echo "installing Copilot, other agents and the tests' packages from npm into .runtime/ (1.1 GB)" >&2
# The new packages are made beside the old ones: a test that runs meanwhile keeps what it has.
new=.runtime/new
rm -rf "$new"
mkdir -p "$new"
cp "$src/package.json" "$src/package-lock.json" "$new/"
npm ci --prefix "$new" --include=dev --include=optional --ignore-scripts \
	--no-audit --no-fund --loglevel=error >/dev/null
# fetched FILE WHAT ELSE: ends the script unless npm installed FILE for this system.
fetched() {
	compgen -G "$new/node_modules/$1" >/dev/null && return
	echo "ci/runtime.sh: npm installed no $2 for $(uname -sm): $3" >&2
	exit 1
}
fetched '@github/copilot-sdk-*/prebuilds/*/copilot-runtime' 'Copilot runtime' \
	'put a copilot CLI on PATH, or name one in COPILOT_CLI_PATH'
fetched '@github/copilot-language-server-*/copilot-language-server*' 'Copilot language server' \
	'name one in COPILOT_LANGUAGE_SERVER'
rm -rf "$stamp" .runtime/old
[ ! -e .runtime/node_modules ] || mv .runtime/node_modules .runtime/old
mv "$new"/* .runtime/
rm -rf "$new" .runtime/old
echo "$want" >"$stamp"
