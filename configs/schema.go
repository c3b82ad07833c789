package configs

import "embed"

//go:embed schema/*.json
var schemas embed.FS

// Schemas are the names of what [Schema] returns: of tapgw.toml, lsclient.toml
// and providers/*.toml.
func Schemas() []string { return []string{"tapgw", "lsclient", "provider"} }

// Schema is the JSON Schema (draft 2020-12) of a kind of file, nil for a name that
// is none of [Schemas]. It knows the same keys as the code that reads the file,
// and refuses nothing which that takes.
func Schema(name string) []byte {
	data, _ := schemas.ReadFile("schema/" + name + ".json")
	return data
}
