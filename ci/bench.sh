#!/usr/bin/env bash
# Runs the benchmarks that compare the programs with a floor or a limit, and prints them in a table. With an argument it
# runs those whose name matches that regular expression. What it prints can be read by benchstat.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/need.sh
need go taskset tmux

# The words of a line: iterations, build tags, package, benchmarks.
benchmarks() {
	local failed=0 times tags package names name pattern
	while read -r times tags package names; do
		pattern=
		for name in $names; do
			[[ ! $name =~ $1 ]] || pattern+="${pattern:+|}^Benchmark$name\$"
		done
		[ -z "$pattern" ] || go test -tags "$tags" -run '^$' -bench "$pattern" -benchtime "$times" -timeout 2h "$package" || failed=1
	done <<-'END'
		41x none ./bench Call RulesOnWire Rules Gates Record MCP MCPServer MCPBridge
		9x none ./bench Inside Start Connect Stream Python MCPList Query
		3x none ./bench Footprint Burst Files Idle Patterns
		300x none ./bench Update
		15x none ./bench SSE TerminalStart
		5x none ./bench TerminalCall
		10x runtime ./bench/lsbench Ready FirstToken
		200x runtime ./bench/lsbench Turn
		3x runtime ./bench/lsbench Memory
		1s none ./tools Search
		3x runtime,e2e ./test/e2e PageOpen PageBusy PageText PageFirst PageHeap
		5x runtime ./providers Node
		15x e2e ./test/cluster Hop Rate
		100x runtime ./internal/copilot GatewayTurn
		1x runtime ./internal/copilot Sessions
	END
	return "$failed"
}

benchmarks "${1:-.}" </dev/null | go run ./bench/table
