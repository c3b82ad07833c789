#!/usr/bin/env bash
# Runs every test: unit, real runtime, end to end. Nothing skips.
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
# Many packages wait for other processes: one more than there are processors runs.
go test -race -shuffle=on -timeout 30m -p $(($(getconf _NPROCESSORS_ONLN) + 1)) -tags "$(cat ci/tags)" "$@" ./...
# Without the race detector the storm of calls is in a bubble, where time is exact.
go test -count=1 -run '^TestCallsEndOnce$' ./internal/gateway
# Each of these runs the whole kit; the race detector makes that eight times as slow.
go test -count=1 -run '^TestGatewayFaults$' ./internal/conformance
