package configs

import (
	"encoding/json"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/tapconfig"
)

// Count is a file of a project that counts once the project is trusted, and a phrase about the
// file's effect, for the person who decides.
type Count struct {
	File string `json:"file"` // from the project's directory
	What string `json:"what"`
}

// TrustChanges returns the result of [Trust] for a directory without recording it, so that a person
// can look at the changes before trusting them. Unlike Trust it accepts the root directory.
func TrustChanges(dir string) (real string, changes []Change, err error) {
	if real, err = realDir(dir); err != nil {
		return "", nil, err
	}
	before, _, err := loadTrust(real)
	if err != nil {
		return "", nil, err
	}
	now, err := readContent(real)
	return real, before.Files.changes(now), err
}

// WhatCounts lists the files of a project that would count if it were trusted now, with the effect
// of each. A fault of a file is in its line, not in the error.
func WhatCounts(dir string) (counts []Count, err error) {
	now, err := readContent(dir)
	if err != nil {
		return nil, err
	}
	for _, rel := range now.paths() {
		file, text := filepath.Join(dir, filepath.FromSlash(rel)), now[rel].Text
		if text == nil && !slices.Contains(tapconfig.Files, rel) { // too large to keep
			if text, err = readFile(file); err != nil {
				counts = append(counts,
					Count{rel, "another file runs or reads it; it is too large to say how"})
				continue
			}
		}
		counts = append(counts, Count{rel, whatCounts(file, rel, text)})
	}
	return counts, nil //nolint:nilerr // the line of the file has the error
}

func whatCounts(file, rel string, text []byte) string {
	const (
		ignored = "nothing yet: "
		repeats = "nothing, it only repeats what counts without it"
	)
	at, name := path.Split(rel)
	switch {
	case slices.Contains(tapconfig.Files, rel):
		return whatTapCounts(file, rel, text)
	case rel == terminalHooks:
		return "Copilot CLIs in terminals here ask the gateway"
	case rel == lspFile:
		return describeServers(text)
	case isCopilotHooks(rel):
		return describeCopilotHooks(rel, text)
	case !slices.Contains(projectDirs, strings.SplitN(rel, "/", 2)[0]):
		return "another file names it, or its place makes programs start it"
	case name == configFile && strings.Count(rel, "/") == 1:
		f := Files{User: userFile(configFile)}
		if !f.changes(file, text) {
			return repeats
		}
		c, found, err := f.load()
		if err != nil {
			c, found = Default(), nil
		}
		before := c
		if faults := c.parseProject(file, text, &found); len(faults) > 0 {
			return ignored + faults.Error() + f.stricter(file)
		}
		return "sessions here use its " + strings.Join(Changed(before, c), ", ") + f.stricter(file)
	case name == lsFile && strings.Count(rel, "/") == 1:
		f := LSFiles{User: lsUserFile()}
		if !f.changes(file, text) {
			return repeats
		}
		c, err := f.Load()
		if err != nil {
			c = DefaultLSClient()
		}
		before := c
		if faults := c.parseProject(file, text); len(faults) > 0 {
			return ignored + faults.Error()
		}
		return "lsclient uses here its " + strings.Join(Changed(before, c), ", ")
	case strings.HasSuffix(at, "/"+providerDirName+"/"):
		p, faults := parseProvider(file, text, true)
		switch {
		case len(faults) > 0:
			return ignored + faults.Error()
		case !p.Enabled:
			return "nothing, because enabled is false"
		}
		return "sessions here have " + p.offer()
	case strings.Contains(rel, "/"+toolDir+"/"):
		return "it is a tool of lsclient here, or part of one"
	}
	return "another file names it"
}

// describeServers names the language servers of a file, for people.
func describeServers(text []byte) string {
	var doc struct {
		Servers map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"lspServers"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return "language servers of Copilot sessions here, unless the runtime can't read it " +
			"either: " + err.Error()
	}
	var runs []string
	for _, name := range slices.Sorted(maps.Keys(doc.Servers)) {
		s := doc.Servers[name]
		line := strings.Join(append([]string{s.Command}, s.Args...), " ")
		runs = append(runs, name+", which runs "+line)
	}
	if len(runs) == 0 {
		return "nothing, it names no language servers"
	}
	return "Copilot sessions in this directory have its language servers: " + strings.Join(runs,
		"; ")
}
