#!/usr/bin/env bash
# What takes no test: formatting, vet, and lock files that name no registry.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go gofmt

bad=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
[ -z "$bad" ] || { echo "not formatted (gofmt -w): $bad" >&2; exit 1; }
! grep -n '"resolved"' test/e2e/package-lock.json test/e2e/agents/package-lock.json || {
	echo "a package-lock.json records registry addresses: lock again with the .npmrc beside it in force" >&2
	exit 1
}
go vet -tags "$(cat ci/tags),soak" ./...
