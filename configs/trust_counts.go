package configs

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Count is a file of a project that counts, and what it does.
type Count struct {
	File string `json:"file"` // from the project's directory
	What string `json:"what"`
}

// TrustChanges is [Trust] that records nothing.
func TrustChanges(dir string) (real string, changes []Change, err error) {
	if real, err = realDir(dir); err != nil {
		return "", nil, err
	}
	before, _, err := loadTrust(real)
	if err != nil {
		return "", nil, err
	}
	now, err := read(real)
	return real, before.Files.changes(now), err
}

// WhatCounts says what the files of a project do where they are trusted as they are
// now.
func WhatCounts(dir string) (counts []Count, err error) {
	now, err := read(dir)
	if err != nil {
		return nil, err
	}
	for _, rel := range now.paths() {
		file, text := filepath.Join(dir, filepath.FromSlash(rel)), now[rel].Text
		if text == nil { // too large to be kept
			if text, err = readFile(file); err != nil {
				counts = append(counts, Count{rel, "it is run, or looked at, by another; too large to say how"})
				continue
			}
		}
		counts = append(counts, Count{rel, whatCounts(file, rel, text)})
	}
	return counts, nil //nolint:nilerr // what can't be read is said of its file
}

func whatCounts(file, rel string, text []byte) string {
	const bad = "nothing yet: "
	at, name := path.Split(rel)
	switch {
	case !slices.Contains(projectDirs, strings.SplitN(rel, "/", 2)[0]):
		return "it is named by another, or starts something by its place"
	case name == configFile && strings.Count(rel, "/") == 1:
		c := Default()
		if !saysTapgw(file, text) {
			return "nothing, it says what holds without it"
		}
		if faults := c.parse(file, text, true, &[]layer{}); len(faults) > 0 {
			return bad + faults.Error()
		}
		return "sessions here go by its " + strings.Join(Changed(Default(), c), ", ")
	case name == lsFile && strings.Count(rel, "/") == 1:
		c := DefaultLSClient()
		if !saysLSClient(file, text) {
			return "nothing, it says what holds without it"
		}
		if faults := c.parse(file, text, true); len(faults) > 0 {
			return bad + faults.Error()
		}
		return "lsclient goes here by its " + strings.Join(Changed(DefaultLSClient(), c), ", ")
	case strings.HasSuffix(at, "/"+providerDirName+"/"):
		p, faults := parseProvider(file, text, true)
		switch {
		case len(faults) > 0:
			return bad + faults.Error()
		case !p.Enabled:
			return "nothing, enabled is false"
		case p.Kind == KindCommand:
			return fmt.Sprintf("sessions here have the provider %s, which starts %s",
				p.Name, strings.Join(p.Command, " "))
		case p.Kind == KindTools:
			return fmt.Sprintf("sessions here have the provider %s, which runs the tools in %s", p.Name, p.Dir)
		}
		return fmt.Sprintf("sessions here have the provider %s, of kind %s", p.Name, p.Kind)
	case strings.Contains(rel, "/"+toolDir+"/"):
		return "it is a tool of lsclient here, or a part of one"
	}
	return "it is named by another"
}
