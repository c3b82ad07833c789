#!/usr/bin/env bash
# Installs the Debian packages that the tests use, where it may; else says how.
set -euo pipefail
packages=(chromium iproute2 python3-pip python3-websockets ripgrep tmux)

command -v apt-get >/dev/null || {
	echo "ci/setup.sh: this is no Debian system: see to these yourself: ${packages[*]}" >&2
	exit 0
}
missing=()
for p in "${packages[@]}"; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "ci/setup.sh: the tests need more packages; run: sudo apt-get install -y ${missing[*]}" >&2
	exit 1
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
