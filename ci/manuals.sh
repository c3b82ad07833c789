#!/usr/bin/env bash
# Writes man pages and shell completions into share/, as they go below /usr/local.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOOS='' GOARCH='' go build -o "$bin/" ./cmd/...
rm -rf share
mkdir -p share/man/man1 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d
for program in "$bin"/*; do
	name=${program##*/}
	"$program" man >"share/man/man1/$name.1"
	"$program" completion bash >"share/bash-completion/completions/$name"
	"$program" completion zsh >"share/zsh/site-functions/_$name"
	"$program" completion fish >"share/fish/vendor_completions.d/$name.fish"
done
