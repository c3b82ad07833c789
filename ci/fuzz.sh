#!/usr/bin/env bash
# Fuzzes every target for FUZZTIME (30s), one on each processor at a time. With the
# arguments FILE FUNC it fuzzes that target.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go

if [ $# -eq 0 ]; then
	targets=$(git grep --untracked -oE '^func Fuzz\w+' -- '*_test.go') || { echo "ci/fuzz.sh: no fuzz target found" >&2; exit 1; }
	sed 's/:func / /' <<<"$targets" | xargs -n 2 -P "$(getconf _NPROCESSORS_ONLN)" bash ci/fuzz.sh
	exit
fi

file=$1 name=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Go's fuzzing engine now and then reports its own deadline as a failure of the target
# (golang/go#75804): such an end names no input and is tried again. A target that hangs
# ends so each time.
for try in 1 2 3; do
	if go test -run "^$name\$" -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 5s -parallel 1 \
		"./$(dirname "$file")" >"$log" 2>&1; then
		echo "fuzzed $(dirname "$file") $name: $(grep -o 'execs: .*' "$log" | tail -n 1)"
		exit
	fi
	cat "$log" >&2
	grep -qx ' *context deadline exceeded' "$log" || break
	! grep -qE 'Failing input written|failure while testing seed corpus' "$log" || break
	echo "ci/fuzz.sh: $name: no input failed, the engine ran out of time (try $try)" >&2
done
exit 1
