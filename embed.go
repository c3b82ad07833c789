// Package tapgw holds the files that "tapgw new" writes: the SDKs for Go, Node and Python, and a
// template for each. Only a package at the root can embed them all.
package tapgw

import "embed"

// Files has the files below their paths in the repository. Of the Go SDK and the packages that it
// imports, it has no tests: the patterns leave out what ends in t.go, and name the one file of the
// SDK that does. Of a template it has what git has, and nothing that was built or installed there.
//
//go:embed go.mod go.sum LICENSE
//go:embed providers/*[^t].go providers/prompt.go
//go:embed internal/chans/*[^t].go internal/lazyregexp/*[^t].go internal/link/*[^t].go
//go:embed internal/proof/*[^t].go
//go:embed internal/statedir/*[^t].go
//go:embed internal/visible/*[^t].go
//go:embed internal/protocol/*[^t].go internal/protocol/host.go internal/protocol/part.go
//go:embed providers/node/index.mjs providers/node/lib/*.mjs providers/node/package.json
//go:embed providers/node/README.md
//go:embed providers/python/tapgw/*.py providers/python/tapgw/py.typed
//go:embed providers/templates/hello/*.go providers/templates/hello/README.md
//go:embed providers/templates/node/*.mjs providers/templates/node/package.json
//go:embed providers/templates/node/README.md
//go:embed providers/templates/python/*.py providers/templates/python/requirements.txt
//go:embed providers/templates/python/README.md
var Files embed.FS
