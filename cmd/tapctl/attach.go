package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/lazyregexp"
)

// lines matches a file's name with one line after it, or the first and the last line.
var lines = lazyregexp.New(`^(.+):(\d{1,9})(?:-(\d{1,9}))?$`)

// readAttachments reads --attach. A value that is the name of a file means that file, even if
// it ends like lines.
func readAttachments(c *command) ([]adminapi.Attachment, error) {
	dir, err := cli.Workdir(c.Context)
	if err != nil {
		return nil, err
	}
	var list []adminapi.Attachment
	for _, v := range c.StringSlice("attach") {
		a := adminapi.Attachment{Path: v}
		if m := lines.FindStringSubmatch(v); m != nil && !exists(dir, v) {
			a.Path = m[1]
			first, _ := strconv.Atoi(m[2]) // at most nine digits
			a.FirstLine = &first
			if last, err := strconv.Atoi(m[3]); err == nil {
				a.LastLine = &last
			}
			if first < 1 || a.LastLine != nil && *a.LastLine < first {
				return nil,
					cli.Usage(
						"flag --attach: %q: lines count from 1, and the last is not "+
							"before the first", v)
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

// readHeaders reads --header.
func readHeaders(c *command) (map[string]string, error) {
	var headers map[string]string
	for _, v := range c.StringSlice("header") {
		name, value, ok := strings.Cut(v, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, cli.Usage("flag --header: %q is not NAME:VALUE", v)
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers, nil
}
