package main

import (
	"net/url"
	"os"
	"os/exec"
	"runtime"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func openCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "open",
		Usage: "open the gateway's page in a browser, signed in",
		Description: `Prints a link that signs a browser in, and on a terminal opens it: by a file that
only you can read, since everybody sees the arguments of programs. The link works once,
and for two minutes; who has followed it stays signed in for a week, or until the gateway
ends. If somebody else may have followed one, sign all browsers out.

Examples:
  tapctl open
  tapctl open --print | xclip
  tapctl open --sign-out`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "print", Usage: "only print the link"},
			&ucli.BoolFlag{Name: "sign-out", Usage: "sign all browsers out instead, and make all links void"},
		},
		Action: shortAction(0, openPage),
	}
}

func openPage(c *command) error {
	if c.Bool("sign-out") {
		if c.Bool("print") {
			return cli.Usage("flag --sign-out: makes no link to --print; give one of the two")
		}
		return signOut(c)
	}
	browser := c.out.Terminal && !c.out.JSON && !c.Bool("print")
	link, err := c.gw.SigninLink(c.ctx, browser)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(link)
	}
	if err := c.out.Printf("%s\n", link.URL); err != nil {
		return err
	}
	if browser && !browse(link.File) {
		c.out.Notef("no browser was found here: open the link in one")
	}
	return nil
}

func signOut(c *command) error {
	if err := c.gw.SignOut(c.ctx); err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(struct{}{})
	}
	return c.out.Printf("all browsers are signed out\n")
}

// browse opens a file in the user's browser, which outlives the command, and reports
// whether there is a program that can. The file is not there for a gateway on another
// machine or of another user.
func browse(file string) bool {
	f, err := os.Open(file) //nolint:gosec // our own gateway wrote it
	if err != nil {
		return false
	}
	_ = f.Close()
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	return exec.Command(name, (&url.URL{Scheme: "file", Path: file}).String()).Start() == nil
}
