#!/usr/bin/env bash
# Fuzzes every target for FUZZTIME (30s), one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go

git grep --untracked -hoE '^func Fuzz\w+' -- '*_test.go' >/dev/null || { echo "ci/fuzz.sh: no fuzz target found" >&2; exit 1; }
git grep --untracked -oE '^func Fuzz\w+' -- '*_test.go' | while IFS=: read -r file func; do
	name=${func#func }
	echo "fuzzing $(dirname "$file") $name"
	go test -run "^$name\$" -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 5s "./$(dirname "$file")"
done
