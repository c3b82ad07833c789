#!/usr/bin/env bash
# Installs what the tests need from npm into .runtime/. Does nothing for packages that are
# there already.
#
#	ci/runtime.sh           what test/e2e/package.json pins: Copilot, MCP servers (600 MB)
#	ci/runtime.sh agents    besides, what test/e2e/agents/package.json pins: other agents
#	ci/runtime.sh demo      the Copilot runtime alone
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need node npm

if [ "${1-}" = demo ]; then
	compgen -G '.runtime/node_modules/@github/copilot-sdk-*/prebuilds/*/copilot-runtime' >/dev/null && exit 0
	sdk=@github/copilot-sdk@$(node -p 'require("./test/e2e/package.json").devDependencies["@github/copilot-sdk"]')
	echo "installing the Copilot runtime from npm into .runtime/ (130 MB)" >&2
	exec npm install --prefix .runtime --no-save --no-package-lock --ignore-scripts \
		--no-audit --no-fund --loglevel=error "$sdk" >/dev/null
fi

# install SOURCE TARGET WHAT: installs what the package.json in SOURCE pins into TARGET.
install() {
	local src=$1 to=$2 new=$2/new want
	want=$(cat "$src/package.json" "$src/package-lock.json" | cksum)-$(uname -sm)
	[ "$(cat "$to/.stamp" 2>/dev/null)" = "$want" ] && return
	echo "installing $3 from npm into $to/" >&2
	# The new packages are made beside the old ones: a test that runs meanwhile keeps what it has.
	rm -rf "$new"
	mkdir -p "$new"
	cp "$src/package.json" "$src/package-lock.json" "$new/"
	npm ci --prefix "$new" --include=dev --include=optional --ignore-scripts \
		--no-audit --no-fund --loglevel=error >/dev/null
	rm -rf "$to/.stamp" "$to/old"
	[ ! -e "$to/node_modules" ] || mv "$to/node_modules" "$to/old"
	mv "$new"/* "$to/"
	rm -rf "$new" "$to/old"
	echo "$want" >"$to/.stamp"
}

# fetched FILE WHAT ELSE: ends the script unless npm installed FILE for this system.
fetched() {
	compgen -G ".runtime/node_modules/$1" >/dev/null && return
	rm -f .runtime/.stamp
	echo "ci/runtime.sh: npm installed no $2 for $(uname -sm): $3" >&2
	exit 1
}

install test/e2e .runtime "Copilot and the tests' packages (600 MB)"
fetched '@github/copilot-sdk-*/prebuilds/*/copilot-runtime' 'Copilot runtime' \
	'put a copilot CLI on PATH, or name one in COPILOT_CLI_PATH'
fetched '@github/copilot-language-server-*/copilot-language-server*' 'Copilot language server' \
	'name one in COPILOT_LANGUAGE_SERVER'
[ "${1-}" != agents ] || install test/e2e/agents .runtime/agents 'other agents (500 MB)'
