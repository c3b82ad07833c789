# shellcheck shell=bash
# Sourced by the other scripts.

# need NAME...: ends with one line that names every command that is missing.
need() {
	local missing=() name
	for name; do command -v "$name" >/dev/null || missing+=("$name"); done
	[ ${#missing[@]} -eq 0 ] && return
	echo "${0##*/}: not found: ${missing[*]} (install them, then run this again)" >&2
	exit 1
}
