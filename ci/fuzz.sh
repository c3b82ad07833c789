#!/usr/bin/env bash
# Fuzzes every target for FUZZTIME (30s), one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz FILE FUNC fuzzes one target. Go's fuzzing engine now and then reports its
# own deadline as a failure of the target (golang/go#75804): such an end names no
# input and is tried again. A target that hangs ends so each time.
fuzz() {
	local file=$1 name=$2 try
	echo "fuzzing $(dirname "$file") $name"
	for try in 1 2 3; do
		go test -run "^$name\$" -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 5s \
			"./$(dirname "$file")" 2>&1 | tee "$log" && return
		grep -qx ' *context deadline exceeded' "$log" || return 1
		! grep -qE 'Failing input written|failure while testing seed corpus' "$log" || return 1
		echo "ci/fuzz.sh: $name: no input failed, the engine ran out of time (try $try)" >&2
	done
	return 1
}

targets=$(git grep --untracked -oE '^func Fuzz\w+' -- '*_test.go') || { echo "ci/fuzz.sh: no fuzz target found" >&2; exit 1; }
while IFS=: read -r file func; do
	fuzz "$file" "${func#func }"
done <<<"$targets"
