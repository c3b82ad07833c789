package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/lazyregexp"
)

// lines is what follows a file's name: one line, or the first and the last.
var lines = lazyregexp.New(`^(.+):(\d{1,9})(?:-(\d{1,9}))?$`)

// attachments reads --attach. A file that has the whole value as its name is that
// file.
func attachments(k *call) ([]client.Attachment, error) {
	dir, err := cli.Workdir(k.Context)
	if err != nil {
		return nil, err
	}
	var list []client.Attachment
	for _, v := range k.StringSlice("attach") {
		a := client.Attachment{Path: v}
		if m := lines.FindStringSubmatch(v); m != nil && !exists(dir, v) {
			a.Path = m[1]
			a.FirstLine, _ = strconv.Atoi(m[2])
			a.LastLine, _ = strconv.Atoi(m[3])
			if a.FirstLine < 1 || m[3] != "" && a.LastLine < a.FirstLine {
				return nil, cli.Usage("flag --attach: %q: lines count from 1, and the last is not before the first", v)
			}
		}
		if a.Path == "" {
			return nil, cli.Usage("flag --attach: needs a file or directory")
		}
		if !exists(dir, a.Path) {
			return nil, cli.Usage("flag --attach: %q does not exist", a.Path)
		}
		if !filepath.IsAbs(a.Path) {
			a.Path = filepath.Join(dir, a.Path)
		}
		list = append(list, a)
	}
	return list, nil
}

func exists(dir, path string) bool {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	_, err := os.Stat(path)
	return err == nil
}

// headers reads --header.
func headers(k *call) (map[string]string, error) {
	var made map[string]string
	for _, v := range k.StringSlice("header") {
		name, value, ok := strings.Cut(v, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, cli.Usage("flag --header: %q is not NAME:VALUE", v)
		}
		if made == nil {
			made = map[string]string{}
		}
		made[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return made, nil
}
