package configs

import "embed"

//go:embed schema/*.json
var schemas embed.FS

// Schemas returns the names that [Schema] knows: "tapgw" for tapgw.toml, "lsclient" for
// lsclient.toml, and "provider" for providers/*.toml.
func Schemas() []string { return []string{"tapgw", "lsclient", "provider"} }

// Schema returns the JSON Schema (draft 2020-12) of a kind of file, nil for a name that is
// not in [Schemas]. It has the same keys as the code that reads the file, and accepts each
// file that this code accepts.
func Schema(name string) []byte {
	data, _ := schemas.ReadFile("schema/" + name + ".json")
	return data
}
