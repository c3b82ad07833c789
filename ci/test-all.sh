#!/usr/bin/env bash
# Runs what takes long: every test with the race detector, other agents and storms among them,
# each fuzz target for FUZZTIME (5s), and vet for the other system that releases are for.
set -euo pipefail
cd "$(dirname "$0")/.."
bash ci/setup.sh
bash ci/runtime.sh agents
bash ci/check.sh
# Another processor makes no difference here.
GOOS=darwin GOARCH=arm64 go vet ./cmd/...
FUZZTIME=${FUZZTIME:-5s} bash ci/fuzz.sh
bash ci/test.sh all
