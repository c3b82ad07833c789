#!/usr/bin/env bash
# Runs the tests that look for a gateway while a stranger holds its default port:
# another user's gateway, a squatter on [::1], a web server, a listener that says
# nothing. With arguments: these packages or flags of go test instead (./... for all).
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go node npm
held=$(mktemp -d)
trap 'rm -rf "$held"' EXIT
go build -o "$held/held" ./test/held
failed=()
beside() {
	echo "beside a $1: ${*:2}"
	"$held/held" "$1" go test -count=1 -timeout 20m -tags "$(cat ci/tags)" "${@:2}" || failed+=("$1")
}
for kind in gateway squatter web silent; do
	if [ $# -gt 0 ]; then
		beside "$kind" "$@"
		continue
	fi
	beside "$kind" ./cmd/... ./providers/... ./tools/provide ./internal/client ./internal/server ./internal/supervisor
	beside "$kind" ./test/e2e -run '^Test(Ensure|GatewayKilled|DocumentExamples|Demo|PageSignIn|HostAndOriginGuards)$'
done
[ ${#failed[@]} -eq 0 ] || { echo "ci/held.sh: failed beside: ${failed[*]}" >&2; exit 1; }
