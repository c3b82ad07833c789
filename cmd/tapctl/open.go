package main

import (
	"net"
	"net/url"
	"os"
	"runtime"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func openCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "open",
		Usage: "open the gateway's page in a browser, signed in",
		Description: `Prints a link that signs a browser in. On a terminal it also opens the link, through a
file that only you can read: other users can see the arguments of programs. The link works
once, within two minutes. A browser that followed it stays signed in for a week, also over
tapgw restart, until the gateway ends. Each gateway has its page at another address, which
nobody else could prepare. If somebody else may have followed a link, sign all
browsers out.

Examples:
  tapctl open
  tapctl open --print | xclip
  tapctl open --sign-out`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "print", Usage: "only print the link"},
			&ucli.BoolFlag{Name: "sign-out",
				Usage: "sign all browsers out instead, and cancel all links"},
		},
		Action: shortAction(0, openPage),
	}
}

func openPage(c *command) error {
	if c.Bool("sign-out") {
		if c.Bool("print") {
			return cli.Usage("flag --sign-out: makes no link to print; leave out --print")
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
		c.out.Notef("found no browser here: open the link in one yourself")
	}
	if at, err := url.Parse(link.URL); err == nil && runtime.GOOS == "darwin" {
		if _, err := net.DefaultResolver.LookupHost(c.ctx, at.Hostname()); err != nil {
			c.out.Notef("Safari does not find %s: if it is your browser, open the link in another",
				at.Hostname())
		}
	}
	return nil
}

func signOut(c *command) error {
	if err := c.gw.SignOut(c.ctx); err != nil {
		return err
	}
	return c.out.Result(struct{}{}, "all browsers are signed out\n")
}

// browse opens a file in the user's browser and reports whether it could. A gateway on another
// machine, or of another user, has no file here.
func browse(file string) bool {
	f, err := os.Open(file) //nolint:gosec // our own gateway wrote it
	if err != nil {
		return false
	}
	_ = f.Close()
	return cli.Browse((&url.URL{Scheme: "file", Path: file}).String())
}
