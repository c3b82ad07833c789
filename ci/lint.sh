#!/usr/bin/env bash
# Runs golangci-lint, built from source at the version that the project pins.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go

go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run --build-tags "$(cat ci/tags)" "$@"
