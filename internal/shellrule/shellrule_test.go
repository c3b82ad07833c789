package shellrule

import (
	"strings"
	"testing"
)

func begin(patterns ...string) (rules []Rule) {
	for _, p := range patterns {
		rules = append(rules, Begins(p))
	}
	return rules
}

func exactly(patterns ...string) (rules []Rule) {
	for _, p := range patterns {
		rules = append(rules, Exactly(p))
	}
	return rules
}

// testRules are the rules of the tests below.
var testRules = begin("git status", "git log", "go test", "wc", "make *-short", "cd", "ls", "find",
	"./build.sh",
	"mytool",
	"npm run *", "git fetch *", "python3 ci/check.py *", "echo", "sort")

func checkAllows(t *testing.T, want bool, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if got := Allows(testRules, line); got != want {
			t.Errorf("%q: allowed %v, want %v", line, got, want)
		}
	}
}

func TestAllows(t *testing.T) {
	checkAllows(t, true,
		"git status",
		" git status\n",
		"git status --short",
		"git log -3 --format='%h %s' HEAD~2..HEAD^ -- a/b.go",
		"git status && git log -3 | wc -l",
		"git status\ngit log",
		"cd /src; go test ./... -run 'TestA|TestB' 2>&1 | wc",
		"go test ./... >/dev/null 2>&1 </dev/null",
		`"git" 'status'`,
		"make test-short",
		"mytool",
		"npm run lint src",
		"npm run",
		"git fetch origin main",
		"python3 ci/check.py a --verbose-names",
		"./build.sh",
		"find . -name '*.go' -type f",
		"echo '$HOME `x` \\n'",
		"echo 'größer'",
		"ls x~y^", // as in x~1^
		"ls a=b",
		"git log '--format=%+s % an'",
		"cd x && find ./y -name z",
		"git --no-pager log --oneline -10",
		"git -P --no-optional-locks --literal-pathspecs --no-replace-objects status",
		"cd /src && git --no-pager log --pretty=oneline",
		"git log --pretty",
		"git log --pretty= -1",
		"git log '--pretty=%h %s' --format=tformat:x '--pretty=format:%C(auto)%h%n%%G %x25'",
		"npm --silent run lint",
		"npm -s --no-color --loglevel=warn run lint",
	)
}

// Options that change nothing may be in a rule, too.
func TestNeutralOptionsOfRules(t *testing.T) {
	for _, tt := range []struct {
		pattern, line string
		want          bool
	}{
		{"git --no-pager diff", "git --no-pager diff HEAD", true},
		{"git --no-pager diff", "git diff HEAD", true},
		{"git --no-pager *", "git --no-pager push", false},
		{"git -c core.pager=cat log", "git -c core.pager=cat log", true},
		{"git -c core.pager=cat log", "git log", false},
		{"docker ps", "docker --debug ps", true},
		{"docker ps", "docker -H tcp://x ps", false},
		{"docker ps", "docker --context x ps", false},
		{"kubectl get pods", "kubectl --request-timeout=5s get pods", true},
		{"kubectl get pods", "kubectl --kubeconfig=x get pods", false},
		{"kubectl get pods", "kubectl -n x get pods", false},
		{"cargo test", "cargo -q --offline --color=never test", true},
		{"cargo test", "cargo --config x test", false},
		{"cargo test", "cargo -C x test", false},
		{"pip list", "pip -q --no-color list", true},
		{"pip list", "pip --python x list", false},
		{"pip list", "pip --log x list", false},
		{"systemctl status x", "systemctl --no-pager -l status x", true},
		{"systemctl status x", "systemctl --root=/x status x", false},
		{"npm test", "npm --prefix x test", false},
		{"npm test", "npm --loglevel silly test", false}, // the value is a word of its own
		{"go test", "go -C x test", false},
		{"mytool x", "mytool --no-pager x", false},
	} {
		if got := Allows(begin(tt.pattern), tt.line); got != tt.want {
			t.Errorf("%q allows %q: %v, want %v", tt.pattern, tt.line, got, tt.want)
		}
	}
}

// Other words than those of a rule are refused.
func TestRefusesOtherWords(t *testing.T) {
	checkAllows(t, false,
		"echo größer", // bytes that some locale takes for a space
		"git",
		"git statusx",
		"git stash",
		"make all",
		"make test-short b",
		"mytool x", // nobody knows what it does with that
		"/evil/git status",
		"./git status",
	)
}

// Options and arguments that write a file or run a program are refused.
func TestRefusesWordsThatWriteOrRun(t *testing.T) {
	checkAllows(t, false,
		"git log --output=FILE",
		"git log --outp=FILE",
		"git log --output FILE",
		"git log --ext-diff -p",
		"git log --format=%G?",
		"git log -O/x",
		"cd x && ./build.sh", // another one
		"go test -exec=evil ./...",
		"go test -exec evil",
		"go test --toolexec=evil",
		"go test -o x",
		"go test -coverprofile=x",
		"go test ./... -args -test.trace=x",
		"find . -exec evil ;",
		"find . -exec evil {} +",
		"find . -delete",
		"find . -fprint x",
		"find . -okdir evil",
		"sort -o x y",
		"sort -no x y",
		"sort --output=x y",
		"sort --compress-program=evil y",
		"make -f/evil-short",
		"make SHELL=evil-short",
		"make test-short -f x",
		"git fetch --upload-pack=evil .",
		"git fetch --upload-p evil .",
		"git fetch ext::evil",
		"git fetch -c core.x=y",
		"npm run x --script-shell=evil",
		"python3 -c evil",
		"python3 ci/other.py",
		"python3 ci/check.py --output=x",
		"echo x | python3",
		"git status && make all",
		"npm run lint ; npm install evil",
		"git -c core.fsmonitor=evil status",
		"git --exec-path=/evil status",
		"command git status",
		"env git status",
		"git log '--format=%+G?'", // runs gpg
		"git log '--format=%-G?'",
		"git log '--format=% G?'",
		"git log '--format=%+%G?'",
		"git log --pretty=%G?",
		"git log '--pretty=format:%h %GG'",
		"git log '--pretty=tformat:%<(20)%G?'",
		"git log --pretty=evil", // a name of the repository's configuration
		"git log --format=one",  // the beginning of such a name
		"git log --pretty=evil%",
		"git log --show-signature",
		"git -p log",
		"git --paginate log",
		"git -C x log",
		"git --git-dir=x log",
		"git --git-dir x log",
		"git --work-tree=x log",
		"git --namespace=x log",
		"git --config-env=core.pager=X log",
		"git --bare log",
		"git --no-pager -c core.fsmonitor=evil status",
		"git -c x=y --no-pager status",
		"git --no-pager",
		"cd x && python3 ci/check.py", // another one
		"cd x && python3 /ci/check.py",
	)
}

// Everything that some shell may read as more than plain words is refused.
func TestRefusesShellSyntax(t *testing.T) {
	checkAllows(t, false,
		`git status ${a="$"}${b="${a}(touch x)"}${b@P}`,
		"git\fstatus\fx/evil.sh",
		"git\vstatus\vx/evil.sh",
		"git\u00a0status x/evil.sh",
		"git status\u00a0;evil",
		`cd x* && ls "${PWD@P}"`,
		"git status > out",
		"git status >> out",
		"git status >| out",
		"git status &> out",
		"git status >&out",
		"git status 3>/dev/null",
		"git status <> out",
		"git status < /etc/passwd",
		"wc <<E\nhi\nE",
		"wc <<< x",
		"git status &",
		"git status & evil",
		"git status |& wc",
		"ls $(evil)",
		"ls `evil`",
		"ls <(evil)",
		"ls >(evil)",
		"ls $x",
		"ls \"$x\"",
		"ls $((1))",
		"ls $'\\x2d'",
		"ls $\"x\"",
		"ls *",
		"ls ?",
		"ls [ab]",
		"ls ~",
		"ls ~root/x",
		"ls {a,b}",
		"ls a\\ b",
		"git sta\\\ntus",
		"git status # x",
		"git status #\nls",
		"git log 'x'\\''y'",
		"ls =ls",
		"ls !!",
		"ls '!x'",
		"^ls^evil",
		"git status\r",
		"git status\tx",
		"git status\x00",
		"git status \x1b[2K",
		"git status \u2028ls",
		"git status \u200b",
		"git status \xff",
		`git log "unterminated`,
		"git status ;; ls",
		"ls @(a|b)",
		strings.Repeat("(", 8000),
		"ls "+strings.Repeat("x", 1<<15),
		"ls 'a\u202eb'",
		"wc -l '\n' | evil",
		"ls \"a'!'b\"",
		"ls <->",
		"ls x(e:evil:)",
		"ls ./x:evil 2>&1x",
		"ls ${IFS}",
		"ls $@",
		"ls \"\\$x\"",
		"ls 12>/dev/null",
		"ls {x}>/dev/null",
		"ls >/dev/nullx",
		"ls >'/dev/null' 2>&1",
	)
}

// Assignments, keywords, functions and commands that change the shell are refused.
func TestRefusesKeywordsAndAssignments(t *testing.T) {
	checkAllows(t, false,
		"PATH=/evil git status",
		"PATH=/evil; git status",
		"! git status",
		"time git status",
		"(git status)",
		"{ git status; }",
		"git() { evil; }; git status",
		"if git status; then ls; fi",
		"for i in 1 2; do git status; done",
		"while git status; do ls; done",
		"case x in x) ls;; esac",
		"coproc git status",
		"[[ -n x ]]",
		"((a=1))",
		"test -v 'a[$(evil)]'",
		"printf %n 'a[$(evil)]'",
		"echo x |\n evil",
		"echo x && { evil; }",
		"echo x; exec evil",
		"echo x; eval evil",
		"nocorrect evil",
		"repeat 3 ls",
		"noglob ls *",
		"declare ls",
		"function ls { evil; }",
		"alias ls=evil; ls",
		"trap evil EXIT; ls",
		"a=b",
		"a+=b ls",
		"ls; a[0]=b",
		"%1",
		"if",
		"",
	)
}

func TestExactly(t *testing.T) {
	for _, tt := range []struct {
		pattern, line string
		want          bool
	}{
		{"go test ./...", "go test ./...", true},
		{"go test ./...", " go test  './...' ", true},
		{"go test ./...", "go test ./... -v", false},
		{"go test *", "go test ./x -run 'A B'", true},
		{"go test *", "go test", true},
		{"go test *", "go testing", false},
		{"go *", "go vet ./...", true},
		{"go *", "go run ./evil", false}, // a rule names it
		{"go run ./gen *", "go run ./gen -v x", true},
		{"git *", "git log -3", true},
		{"git *", "git -c core.pager=evil log", false},
		{"git *", "git bisect run evil", false},
		{"git commit *", "git commit -m 'a b'", true},
		{"git log --output=*", "git log --output=x", true},
		{"* --version", "sh --version", false},
		{"* --version", "gcc --version", true},
		{"*", "ls -l", true},
		{"*", "make SHELL=x", false},
		{"*", "sh -c evil", false},
		{"*", "xargs evil", false},
		{"sh -c *", "sh -c evil", false},
		{"xargs wc", "ls | xargs wc", false}, // what it runs with comes from elsewhere
		{"sh", "sh", true},
		{"sh ci/test.sh *", "sh ci/test.sh ./x -v", true},
		{"sh ci/*.sh", "sh ci/test.sh", false},
		{"python3 -m pytest *", "python3 -m pytest -k x", true},
		{"go * | head", "go vet ./... | head", true},
		{"go * | head", "go vet ./...", false},
		{"go * | head", "go vet ./... && head", false},
		{"echo $(date)", "echo $(date)", true},
		{"echo $(date)", "echo $(evil)", false},
		{"ls *.go", "ls *.go", false}, // the files' names could be options
		{"ls '*.go'", "ls '*.go'", true},
		{"git commit -m 'x *'", "git commit -m 'x *'", true},
		{"git commit -m 'x *'", "git commit -m 'x y'", false}, // a quoted star is one
		{"make test-*", "make test-short", true},
		{"make test-*", "make test-x SHELL=y", false},
		{"make *", "make all", true},
		{"make *", "make -C /evil", false},
		{"make *", "make --eval=x", false},
		{"make *", "make 'SHELL = /tmp/evil'", false},
		{"make *", "make .SHELLFLAGS=x", false},
		{"make *", "make 'override SHELL=x'", false},
		{"make *", "make '$(shell touch ./x)=y'", false},
		{"make *", "make --include-dir=/tmp/evil", false},
		{"make *", "make --touch", false},
		{"npm run *", "npm run lint --prefix /tmp/evil", false},
		{"npm run *", "npm run lint -C /tmp/evil", false},
		{"npm run *", "npm run lint --userconfig=/tmp/evil", false},
		{"npm run *", "npm run lint --node-options=--require=/tmp/evil.js", false},
		{"npm run *", "npm run lint --silent", true},
		{"cargo test *", "cargo test --manifest-path=/tmp/evil/Cargo.toml", false},
		{"cargo test *", "cargo test -- --logfile x", false},
		{"cargo test *", "cargo test --profile release", true},
		{"kubectl get *", "kubectl get pods --kubeconfig=/tmp/evil", false},
		{"kubectl get *", "kubectl get pods --profile=cpu --profile-output=x", false},
		{"kubectl get *", "kubectl get pods -A --watch", true},
		{"go build *", "go build '-ldflags=-linkmode=external -extld=/tmp/evil' .", false},
		{"gcc *", "gcc -wrapper evil x.c", false},
		{"curl *", "curl --dump-header x http://h/", false},
		{"curl *", "curl --trace x http://h/", false},
		{"gradle test *", "gradle test -I evil.gradle", false},
		{"pytest *", "pytest --junitxml=x", false},
		{"git branch *", "git branch '--format=%(signature)'", false}, // runs gpg
		{"git branch *", "git branch --sort=signature", false},
		{"git for-each-ref *", "git for-each-ref '--format=%(*signature:grade)'", false},
		{"git for-each-ref *", "git for-each-ref --format '%(signature)'", false},
		{"git for-each-ref *", "git for-each-ref --sort -signature:key", false},
		{"git for-each-ref *", "git for-each-ref '--format=%(refname) %(subject)'", true},
		{"git reflog *", "git reflog --pretty=%G?", false},
		{"git reflog *", "git reflog --pretty=evil", false},
		{"git reflog *", "git reflog --format=%h", true},
		{"git stash *", "git stash list --show-signature", false},
		{"git merge *", "git merge --verify-signatures x", false},
		{"git rebase *", "git rebase --continue", true},
		{"git tag *", "git tag -v x", false},
		{"git diff-files *", "git diff-files --no-index /etc/passwd x", false},
		{"git annotate *", "git annotate --contents=/etc/passwd x", false},
		{"git blame *", "git blame --contents /etc/passwd x", false},
		{"git blame *", "git blame -S/etc/passwd x", false},
		{"git blame *", "git blame -L 1,5 -w x", true},
		{"git grep *", "git grep -nf /etc/passwd", false},
		{"git grep *", "git grep -Oevil x", false},
		{"git grep *", "git grep --open-files-in-pager=evil x", false},
		{"git grep *", "git grep -n x", true},
		{"git ls-files *", "git ls-files -X /etc/passwd", false},
		{"git diff *", "git diff --no-index a b", false},
		{"git diff *", "git diff a /etc/passwd", false},
		{"git diff *", "git diff -- ../x y", false},
		{"git diff *", "git diff ../x", true}, // two files are compared, or none
		{"git diff *", "git diff main..x HEAD:../a", true},
		{"git diff *", "git diff --textconv", false},
		{"git branch *", "git branch --sort=-committerdate '--format=%(refname:short)'", true},
		{"git bisect *", "git bisect run evil", false},
		{"git bisect *", "git bisect good", true},
		{"git bisect run ./test *", "git bisect run ./test x", true},
		{"git submodule *", "git submodule --quiet foreach evil", false},
		{"poetry run *", "poetry run evil", false},
		{"poetry run pytest *", "poetry run pytest -k x", true},
		{"docker compose *", "docker compose exec x evil", false},
		{"socat *", "socat - EXEC:evil", false},
		{"fzf *", "fzf --preview evil", false},
		{"pkexec *", "pkexec evil", false},
		{"a.c", "abc", false},
		{"", "ls", false},
		{"*", "ls; rm x", true}, // each of them is any
	} {
		if got := Allows(exactly(tt.pattern), tt.line); got != tt.want {
			t.Errorf("%q allows %q: %v, want %v", tt.pattern, tt.line, got, tt.want)
		}
	}
	if rules := exactly("echo *", "sh"); Allows(rules, "echo 'rm x' | sh") {
		t.Error("a shell is fed with a program, want no permission")
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, word string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "a", true}, {"a*", "abc", true},
		{"*a", "bca", true}, {"*a", "ab", false},
		{"a*b*c", "abc", true}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "acb", false},
		{"*b*b", "b", false}, {"*b*b", "bb", true},
		{"a*a", "a", false}, {"*", "", true}, {"**", "x/y", true}, {"", "", true}, {"", "x", false},
		{strings.Repeat("*a", 50) + "b", strings.Repeat("a", 1<<20), false},
	} {
		if got := matchesWord(strings.ReplaceAll(tt.pattern, "*", star), tt.word); got != tt.want {
			t.Errorf("%q, %.20q: %v, want %v", tt.pattern, tt.word, got, tt.want)
		}
	}
}

func TestDenies(t *testing.T) {
	patterns := []string{"rm", "git push", "/sbin/mkfs*", "npm * --force", "curl *"}
	for line, want := range map[string]bool{
		"git status && rm -rf x":         true,
		"/bin/rm x":                      true,
		`r\m x`:                          true,
		`"rm" x`:                         true,
		"r''m x":                         true,
		"$'rm' x":                        true,
		"A=1 B=2 rm x":                   true,
		"git log $(rm x)":                true,
		"git log `rm x`":                 true,
		"git log \"$(rm x)\"":            true,
		"git push --force":               true,
		"git\fpush":                      true,
		"git\u00a0push":                  true,
		"r\\\nm x":                       true,
		"if true; then rm x; fi":         true,
		"f() { rm x; }; f":               true,
		"ls;rm x":                        true,
		"ls&rm x":                        true,
		"ls|rm":                          true,
		"sudo -u root rm x":              true,
		"env A=1 rm x":                   true,
		"env --split-string='rm x'":      true,
		"tar --to-command='rm x' -xf a":  true,
		"tar --x-action=exec=rm":         true,
		"tar --exclude=arm -cf a x":      false,
		"sh -c 'rm x'":                   true,
		"timeout 5 rm x":                 true,
		"find . -exec rm {} ;":           true,
		"ls | xargs rm":                  true,
		"eval rm x":                      true,
		"mkfs.ext4 /dev/sda":             true,
		"npm install --force":            true,
		"! rm x":                         true,
		"case x in x) rm y;; esac":       true,
		">/dev/null rm x":                true,
		"2>&1 rm x":                      true,
		"{fd}>'a b' rm x":                true,
		"&>x rm y":                       true,
		"<<<x rm y":                      true,
		"A=\"x y\" B='z z' rm x":         true,
		"A=x\\ y rm x":                   true,
		"a[0]=1 rm x":                    true,
		"A=$(rm x) ls":                   true,
		"git -C . push":                  true,
		"git -c a=b --no-pager push":     true,
		"npm --prefix x install --force": true,
		"npm exec rm x":                  true,
		"uv run rm x":                    true,
		"chrt 1 rm x":                    true,
		"git --no-pager push":            true,
		"git -P -c x=y push":             true,
		"git -c user.name='A B' push":    true,
		"git -C \"a b\" push":            true,
		"git -C a\\ b push":              true,
		"git -C 'a; b' push":             true,
		"A='b c' git -C 'a b' push x":    true,
		"sudo git -C . push":             true,
		"env A=1 git --no-pager push":    true,
		"timeout 5 git -c a=b push":      true,
		"if git -C . push; then ls; fi":  true,
		"sh -c 'git -C . push'":          true,
		"sudo npm exec rm x":             true,
		"curl x":                         true,
		"curl":                           true,
		"git " + strings.Repeat("-c a=b ", 200) + "push":                   true,
		"git " + strings.Repeat("-P ", 200) + "push":                       true,
		"env " + strings.Repeat("git -P -c a=b ", 1<<14) + "git -C . push": true,

		"":             false,
		"rmdir x":      false,
		"echo rm":      false,
		"git rm x":     false,
		"git status":   false,
		"npm --force":  false,
		"ls rm":        false,
		"git log push": false,

		"git --no-pager log push":    false,
		"git --no-pager show rm":     false,
		"git commit -m 'a; b push'":  false,
		"git log --author='rm push'": false,
		"echo a > b rm":              false,
	} {
		if got := Denies(patterns, line); got != want {
			t.Errorf("%q: denied %v, want %v", line, got, want)
		}
	}
	if !Denies(patterns, "x", "rm y") {
		t.Error("a command that somebody else found is allowed, want a denial")
	}
	if long := strings.Repeat("env ", 1<<15); Denies(patterns, long) {
		t.Error("a row of programs that run others is denied, want no verdict")
	}
}
