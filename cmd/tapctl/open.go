package main

import (
	"os/exec"
	"runtime"

	ucli "github.com/urfave/cli/v2"
)

func openCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "open",
		Usage: "open the gateway's page in a browser, signed in",
		Description: `Prints a link that signs a browser in, and on a terminal opens it. It works once, and
for two minutes; who has followed it stays signed in for a week, or until the gateway
ends.

Examples:
  tapctl open
  tapctl open --print | xclip`,
		Flags: []ucli.Flag{&ucli.BoolFlag{Name: "print", Usage: "only print the link"}},
		Action: short(0, func(k *call) error {
			link, err := k.gw.SigninLink(k.ctx)
			if err != nil {
				return err
			}
			if k.out.JSON {
				return k.out.Document(link)
			}
			if err := k.out.Printf("%s\n", link.URL); err != nil {
				return err
			}
			if k.out.Terminal && !k.Bool("print") && !browse(link.URL) {
				k.out.Notef("no browser was found here: open the link in one")
			}
			return nil
		}),
	}
}

// browse opens a link in the user's browser, which outlives the command, and
// reports whether there is a program that can. The link is in that program's
// arguments for a moment: it works once.
func browse(link string) bool {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	return exec.Command(name, link).Start() == nil
}
