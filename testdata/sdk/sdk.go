// Package sdk holds the scenarios that every provider SDK plays, so that programs can embed them.
// README.md explains their format.
package sdk

import "embed"

// Scenarios are the files NAME.json, one scenario each.
//
//go:embed *.json
var Scenarios embed.FS
