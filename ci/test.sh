#!/usr/bin/env bash
# Runs every test but those of ci/long: unit, real runtime, end to end. Nothing skips. The
# packages of ci/race, whose goroutines share memory, have the race detector on.
#
#	ci/test.sh all    runs every test, with the race detector
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go node npm
# The Python examples run on the system's own interpreter: another python3 may
# come first on PATH, without the package.
/usr/bin/python3 -c 'import websockets' 2>/dev/null || {
	echo "ci/test.sh: not found: websockets for /usr/bin/python3 (Debian: apt-get install python3-websockets)" >&2
	exit 1
}
tags=$(cat ci/tags)
# Without the race detector the storm of calls is in a bubble, where time is exact.
exact() { go test -count=1 -run '^TestCallsEndOnce$' ./internal/gateway; }
# Programs of the tests wait for each other: more packages at once starve them.
cpus=$(getconf _NPROCESSORS_ONLN)

if [ "${1-}" = all ]; then
	go test -race -shuffle=on -timeout 30m -p "$cpus" -tags "$tags" ./...
	exact
	exit
fi

skip=$(sed -e '/^#/d' -e 's,/,$/^,g' -e 's/.*/^&$/' ci/long | paste -sd '|')
raced=$(sed 's,^,./,' ci/race | xargs go list -tags "$tags")
# The longest packages start first.
first='tapgw/test/e2e tapgw/internal/copilot tapgw/cmd/lsclient tapgw/providers tapgw/cmd/tapgw'
rest=$(go list -tags "$tags" ./... | grep -vxF -e "$raced" -e "${first// /$'\n'}")
# shellcheck disable=SC2086 # lists of packages
go test -shuffle=on -timeout 20m -p "$cpus" -tags "$tags" -skip "$skip" $first $rest
# shellcheck disable=SC2086
go test -race -shuffle=on -timeout 20m -p "$cpus" -tags "$tags" -skip "$skip" $raced
exact
