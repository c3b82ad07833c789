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

func TestAllows(t *testing.T) {
	rules := begin("git status", "git log", "go test", "wc", "make *-short", "cd", "ls", "find", "./build.sh", "mytool",
		"npm run *", "git fetch *", "python3 ci/check.py *", "echo", "sort")
	for line, want := range map[string]bool{
		"git status":         true,
		" git status\n":      true,
		"git status --short": true,
		"git log -3 --format='%h %s' HEAD~2..HEAD^ -- a/b.go": true,
		"git status && git log -3 | wc -l":                    true,
		"git status\ngit log":                                 true,
		"cd /src; go test ./... -run 'TestA|TestB' 2>&1 | wc": true,
		"go test ./... >/dev/null 2>&1 </dev/null":            true,
		`"git" 'status'`:                                      true,
		"make test-short":                                     true,
		"mytool":                                              true,
		"npm run lint src":                                    true,
		"npm run":                                             true,
		"git fetch origin main":                               true,
		"python3 ci/check.py a --verbose-names":               true,
		"./build.sh":                                          true,
		"find . -name '*.go' -type f":                         true,
		"echo '$HOME `x` \\n'":                                true,
		"echo größer":                                         false, // bytes that some locale takes for a space
		"echo 'größer'":                                       true,

		"git":               false,
		"git statusx":       false,
		"git stash":         false,
		"make all":          false,
		"make test-short b": false,
		"mytool x":          false, // nobody knows what it does with that
		"/evil/git status":  false,
		"./git status":      false,

		// The cases of an attack.
		`git status ${a="$"}${b="${a}(touch x)"}${b@P}`: false,
		"git\fstatus\fx/evil.sh":                        false,
		"git\vstatus\vx/evil.sh":                        false,
		"git\u00a0status x/evil.sh":                     false,
		"git status\u00a0;evil":                         false,
		`cd x* && ls "${PWD@P}"`:                        false,
		"git log --output=FILE":                         false,
		"git log --outp=FILE":                           false,
		"git log --output FILE":                         false,
		"git log --ext-diff -p":                         false,
		"git log --format=%G?":                          false,
		"git log -O/x":                                  false,

		// What does more than running these words.
		"PATH=/evil git status":             false,
		"PATH=/evil; git status":            false,
		"git status > out":                  false,
		"git status >> out":                 false,
		"git status >| out":                 false,
		"git status &> out":                 false,
		"git status >&out":                  false,
		"git status 3>/dev/null":            false,
		"git status <> out":                 false,
		"git status < /etc/passwd":          false,
		"wc <<E\nhi\nE":                     false,
		"wc <<< x":                          false,
		"git status &":                      false,
		"git status & evil":                 false,
		"git status |& wc":                  false,
		"! git status":                      false,
		"time git status":                   false,
		"(git status)":                      false,
		"{ git status; }":                   false,
		"git() { evil; }; git status":       false,
		"if git status; then ls; fi":        false,
		"for i in 1 2; do git status; done": false,
		"while git status; do ls; done":     false,
		"case x in x) ls;; esac":            false,
		"coproc git status":                 false,
		"[[ -n x ]]":                        false,
		"((a=1))":                           false,
		"ls $(evil)":                        false,
		"ls `evil`":                         false,
		"ls <(evil)":                        false,
		"ls >(evil)":                        false,
		"ls $x":                             false,
		"ls \"$x\"":                         false,
		"ls $((1))":                         false,
		"ls $'\\x2d'":                       false,
		"ls $\"x\"":                         false,
		"ls *":                              false,
		"ls ?":                              false,
		"ls [ab]":                           false,
		"ls ~":                              false,
		"ls ~root/x":                        false,
		"ls {a,b}":                          false,
		"ls a\\ b":                          false,
		"git sta\\\ntus":                    false,
		"git status # x":                    false,
		"git status #\nls":                  false,
		"git log 'x'\\''y'":                 false,
		"ls =ls":                            false,
		"ls !!":                             false,
		"ls '!x'":                           false,
		"^ls^evil":                          false,
		"git status\r":                      false,
		"git status\tx":                     false,
		"git status\x00":                    false,
		"git status \x1b[2K":                false,
		"git status \u2028ls":               false,
		"git status \u200b":                 false,
		"git status \xff":                   false,
		`git log "unterminated`:             false,
		"git status ;; ls":                  false,
		"ls @(a|b)":                         false,
		strings.Repeat("(", 8000):           false,
		"ls " + strings.Repeat("x", 1<<15):  false,
		"cd x && ./build.sh":                false, // another one
		"go test -exec=evil ./...":          false,
		"go test -exec evil":                false,
		"go test --toolexec=evil":           false,
		"go test -o x":                      false,
		"go test -coverprofile=x":           false,
		"go test ./... -args -test.trace=x": false,
		"find . -exec evil ;":               false,
		"find . -exec evil {} +":            false,
		"find . -delete":                    false,
		"find . -fprint x":                  false,
		"find . -okdir evil":                false,
		"sort -o x y":                       false,
		"sort -no x y":                      false,
		"sort --output=x y":                 false,
		"sort --compress-program=evil y":    false,
		"make -f/evil-short":                false,
		"make SHELL=evil-short":             false,
		"make test-short -f x":              false,
		"git fetch --upload-pack=evil .":    false,
		"git fetch --upload-p evil .":       false,
		"git fetch ext::evil":               false,
		"git fetch -c core.x=y":             false,
		"npm run x --script-shell=evil":     false,
		"python3 -c evil":                   false,
		"python3 ci/other.py":               false,
		"python3 ci/check.py --output=x":    false,
		"echo x | python3":                  false,
		"git status && make all":            false,
		"ls 'a\u202eb'":                     false,
		"npm run lint ; npm install evil":   false,
		"git -c core.fsmonitor=evil status": false,
		"git --exec-path=/evil status":      false,
		"command git status":                false,
		"env git status":                    false,
		"wc -l '\n' | evil":                 false,
		"test -v 'a[$(evil)]'":              false,
		"printf %n 'a[$(evil)]'":            false,
		"echo x |\n evil":                   false,
		"echo x && { evil; }":               false,
		"echo x; exec evil":                 false,
		"echo x; eval evil":                 false,
		"nocorrect evil":                    false,
		"repeat 3 ls":                       false,
		"noglob ls *":                       false,
		"ls x~y^":                           true, // as in x~1^
		"ls \"a'!'b\"":                      false,
		"ls <->":                            false,
		"ls x(e:evil:)":                     false,
		"ls ./x:evil 2>&1x":                 false,
		"declare ls":                        false,
		"function ls { evil; }":             false,
		"alias ls=evil; ls":                 false,
		"trap evil EXIT; ls":                false,
		"ls ${IFS}":                         false,
		"ls $@":                             false,
		"ls \"\\$x\"":                       false,
		"ls 12>/dev/null":                   false,
		"ls {x}>/dev/null":                  false,
		"ls >/dev/nullx":                    false,
		"ls >'/dev/null' 2>&1":              false,
		"ls a=b":                            true,
		"git log '--format=%+G?'":           false, // runs gpg
		"git log '--format=%-G?'":           false,
		"git log '--format=% G?'":           false,
		"git log '--format=%+%G?'":          false,
		"git log '--format=%+s % an'":       true,
		"cd x && python3 ci/check.py":       false, // another one
		"cd x && python3 /ci/check.py":      false,
		"cd x && find ./y -name z":          true,
		"a=b":                               false,
		"a+=b ls":                           false,
		"ls; a[0]=b":                        false,
		"%1":                                false,
		"if":                                false,
		"":                                  false,
	} {
		if got := Allows(rules, line); got != want {
			t.Errorf("%q: allowed %v, want %v", line, got, want)
		}
	}
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
		t.Error("a shell is fed with a program")
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, word string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "a", true}, {"a*", "abc", true}, {"*a", "bca", true},
		{"*a", "ab", false},
		{"a*b*c", "abc", true}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "acb", false}, {"*b*b", "b", false},
		{"*b*b", "bb", true},
		{"a*a", "a", false}, {"*", "", true}, {"**", "x/y", true}, {"", "", true}, {"", "x", false},
		{strings.Repeat("*a", 50) + "b", strings.Repeat("a", 1<<20), false},
	} {
		if got := matches(strings.ReplaceAll(tt.pattern, "*", star), tt.word); got != tt.want {
			t.Errorf("%q, %.20q: %v, want %v", tt.pattern, tt.word, got, tt.want)
		}
	}
}

func TestDenies(t *testing.T) {
	patterns := []string{"rm", "git push", "/sbin/mkfs*", "npm * --force"}
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

		"":              false,
		"rmdir x":       false,
		"echo rm":       false,
		"git rm x":      false,
		"git status":    false,
		"npm --force":   false,
		"ls rm":         false,
		"git log push":  false,
		"echo a > b rm": false,
	} {
		if got := Denies(patterns, line); got != want {
			t.Errorf("%q: denied %v, want %v", line, got, want)
		}
	}
	if !Denies(patterns, "x", "rm y") {
		t.Error("a command that somebody else found is not denied")
	}
	if long := strings.Repeat("env ", 1<<15); Denies(patterns, long) {
		t.Error("a row of programs that run others is denied")
	}
}
