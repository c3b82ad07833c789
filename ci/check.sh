#!/usr/bin/env bash
# What takes no test: formatting, vet, here and for macOS, and a lock file that names no registry.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go gofmt

bad=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
[ -z "$bad" ] || { echo "not formatted (gofmt -w): $bad" >&2; exit 1; }
! grep -n '"resolved"' test/e2e/package-lock.json || {
	echo "test/e2e/package-lock.json records registry addresses: lock again with test/e2e/.npmrc in force" >&2
	exit 1
}
go vet -tags "$(cat ci/tags),soak" ./...
# The other system that releases are for. Another processor makes no difference here.
GOOS=darwin GOARCH=arm64 go vet ./cmd/...
