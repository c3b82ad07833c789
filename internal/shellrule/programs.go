package shellrule

import (
	"path"
	"slices"
	"strings"
	"sync"

	"tapgw/internal/lazyregexp"
)

// Knowledge about programs: which of their words may write files or run other programs.

// openWords are the words of a command that its rule does not determine: the words at a star of the
// rule, and the words after its last word.
type openWords struct {
	words        []string // of the command
	fixed        int      // how many words at the beginning the rule determines
	at           []int    // indexes of the open words
	harmlessOnly bool     // the open words must be known to be harmless
}

// refused returns the index of the first open word that may write a file or run a program,
// according to the tables of this file, or -1. It is 0 if isPiped is true and the program runs its
// input.
func (o openWords) refused(isPiped bool) int {
	program := path.Base(o.words[0])
	hasScript := o.fixed > 1 && !strings.HasPrefix(o.words[1], "-") || o.fixed > 2 &&
		o.words[1] == "-m"
	first := func(refuses func(i int) bool) int {
		if n := slices.IndexFunc(o.at, refuses); n >= 0 {
			return o.at[n]
		}
		return -1
	}
	anyWord := func(int) bool { return true }
	if pattern, from := o.harmlessPattern(); pattern != nil && len(o.at) > 0 {
		comparesFiles := program == "git" && o.words[1] == "diff" && operands(o.words[from:]) > 1
		return first(func(i int) bool {
			return i >= from && (!pattern.MatchString(o.words[i]) || comparesFiles &&
				outside.MatchString(o.words[i]))
		})
	}
	switch {
	case interpreters.has(program) && !hasScript, runners.has(program):
		if isPiped || len(o.at) > 0 {
			return max(0, first(anyWord))
		}
		return -1
	}
	isOpen := families.has(program) &&
		(o.fixed < 2 || strings.HasPrefix(o.words[1], "-") || o.nameProgram())
	return first(func(i int) bool {
		return o.harmlessOnly || isOpen || isDangerous(program, o.words[i])
	})
}

// outside matches paths that lead out of the directory. With two of them, or one beside
// another path, git diff compares files that are in no repository.
var outside = lazyregexp.New(`^/|(^|/)\.\.(/|$)`)

// operands counts the words that are no options.
func operands(words []string) (n int) {
	for _, word := range words {
		if !strings.HasPrefix(word, "-") {
			n++
		}
	}
	return n
}

// revision matches words that git diff reads as commits. Other words may be files.
var revision = lazyregexp.New(`^@|HEAD|[~^:]|\.\.|^[0-9a-f]{7,64}$`)

// nameProgram reports whether the first open word that is no option is a program that a
// family's command runs, or is such a command, as in git bisect run.
func (o openWords) nameProgram() bool {
	for _, i := range o.at {
		if i > 0 && !strings.HasPrefix(o.words[i], "-") {
			return nested.MatchString(o.words[i]) ||
				nested.MatchString(path.Base(o.words[0])+" "+o.words[i-1])
		}
	}
	return false
}

// dependsOnDir reports whether the command runs another program in another directory, because the
// program's name or its script's name is a relative path.
func (c command) dependsOnDir() bool {
	isRelative := func(word string) bool { return strings.Contains(word, "/") && !path.IsAbs(word) }
	program := path.Base(c.words[0])
	switch {
	case isRelative(c.words[0]):
		return true
	case interpreters.has(program):
		return len(c.words) > 1 && !path.IsAbs(c.words[1])
	case program == "git" && len(c.words) > 1 && c.words[1] == "diff":
		// Outside of a repository it compares any two files.
		return operands(c.words[2:]) > 1 && !slices.ContainsFunc(c.words[2:], revision.MatchString)
	}
	return runners.has(program) && harmless()[program] == nil &&
		slices.ContainsFunc(c.words, isRelative)
}

// harmlessPattern finds the pattern for harmless words of the command, and the index of
// the first word that it applies to. The pattern is nil for an unknown command.
func (o openWords) harmlessPattern() (pattern *lazyregexp.Regexp, from int) {
	for n := min(2, len(o.words)); n > 0; n-- {
		key := append([]string{path.Base(o.words[0])}, o.words[1:n]...)
		if pattern := harmless()[strings.Join(key, " ")]; pattern != nil {
			return pattern, n
		}
	}
	return nil, 0
}

// words is a list of words with white space between them. Unlike a slice made of it, it takes no
// time at the start of a program.
type words string

func (l words) has(word string) bool { return l.hasFunc(func(w string) bool { return w == word }) }

func (l words) hasFunc(is func(string) bool) bool {
	for w := range strings.FieldsSeq(string(l)) {
		if is(w) {
			return true
		}
	}
	return false
}

// runners are commands that run a program among their words, or change the shell's next commands. A
// rule allows them only with exactly its own words.
const runners words = `
	- . alias at autoload batch bg bind builtin bun bunx busybox bwrap caffeinate cd chdir choom chpst chroot chrt
	command compgen complete compopt coproc crontab dbus-run-session dd declare deno direnv disown disable doas
	eatmydata ed emacs emulate enable entr env eval ex exec export faketime fakeroot fc fg find firejail flock
	foreach function fzf getopts gdb git-shell hash history hyperfine ionice jobs let linux32 linux64 local logout
	ltrace man mapfile more less mysql nano nc ncat netcat nice nocorrect noglob nohup nsenter numactl parallel perf
	pkexec popd printf prlimit proot psql pushd read readarray readonly repeat rsync run0 runcon runuser sched scp
	screen script sed select set setarch setpriv setsid sftp shift shopt socat source split sqlite3 ssh ssh-agent
	start-stop-daemon stdbuf strace su sudo systemd-inhibit systemd-run tar taskset tclsh tcpdump test time timeout
	tmux torsocks toybox trap typeset ulimit unalias unbuffer unset unshare valgrind vi view vim watch watchexec
	which-shell xargs xterm zargs zmodload zip zstyle`

// interpreters run a program from their words or from a pipe. If a rule determines the
// file, or python's -m MODULE, the arguments behind it may be open.
const interpreters words = `
	ash awk bash csh dash elixir expect fish gawk irb java jshell julia ksh lua lua5.4 luajit mawk mksh nawk node
	nodejs osascript perl php pwsh python python2 python3 R Rscript rbash ruby sh tcsh ts-node tsx wish yash zsh`

// families are programs with many commands. A rule must determine the command.
const families words = `
	apt apt-get aws az brew bundle cargo composer conda docker dotnet gcloud gh git go gradle gradlew helm hg jj
	kubectl mvn mvnw npm npx nix pip pip3 pipx pnpm podman poetry rake rustup svn systemctl terraform uv uvx yarn`

// neutral matches, for families, the options before the command that do not change which command
// runs, nor where: how the program writes, waits or asks. They are from the programs' own help:
// git(1), npm's shorthands, docker --help, kubectl options, cargo --help, pip --help and systemctl
// --help. Options with the value in the next word are not among them. go has no such options.
var neutral = sync.OnceValue(func() map[string]*lazyregexp.Regexp {
	compiled := map[string]*lazyregexp.Regexp{}
	for program, options := range map[string]string{
		"git": `-P|--no-pager|--no-optional-locks|--no-replace-objects|--no-lazy-fetch|--no-advice` +
			`|--(literal|glob|noglob|icase)-pathspecs`,
		"npm":       `-[sqd]|--(silent|quiet|verbose|no-color|no-progress|no-fund|no-update-notifier|loglevel=\w+)`,
		"docker":    `-D|--debug|--log-level=\w+`,
		"kubectl":   `--(match-server-version|disable-compression|warnings-as-errors|request-timeout=\w+)`,
		"cargo":     `-q|-v+|--(quiet|verbose|locked|offline|frozen|color=\w+)`,
		"pip":       `-q+|-v+|--(quiet|verbose|no-color|no-input|disable-pip-version-check)`,
		"systemctl": `-[lq]|--(full|quiet|no-pager|no-legend|legend=\w+|no-ask-password)`,
	} {
		compiled[program] = lazyregexp.New(`^(?:` + options + `)$`)
	}
	compiled["pip3"] = compiled["pip"]
	return compiled
})

// withoutNeutral returns the words of a command without the neutral options of its program.
func withoutNeutral(words []string) []string {
	options := neutral()[path.Base(words[0])]
	if options == nil {
		return words
	}
	command := slices.IndexFunc(words[1:], func(word string) bool {
		return !options.MatchString(word)
	})
	if command < 0 { // there are only options
		return words
	}
	return append(words[:1:1], words[1+command:]...)
}

// nested matches the commands of families that run the program that is named next, alone
// or behind the family's name.
var nested = lazyregexp.New(
	`^(run|exec|dlx|foreach)$|^(conda|docker|go|nix|pipx|podman|poetry|rustup|uv) run$` +
		`|^\w+ (exec|dlx|foreach)$`)

// writesOrRuns are options that in most programs name a file to write, a program to run,
// or settings that do either. Programs accept abbreviations, and have longer options
// that end like these, such as --cache-dir.
const writesOrRuns words = `
	alt-svc basetemp checkpoint-action command compress-program config cookie-jar create-dirs cwd dir directory
	dump-header editor engine eval exec ext-diff extcmd file flags hsts import init-file init-script junitxml
	junit-xml libcurl load log-file makefile mod modfile open-files-in-pager options out-dir outdir outfile output
	overlay pager path plugin prefix preload prepend-path program rcfile receive-pack remote-header-name remote-name
	report require rsh rsync-path runner save script-shell separate-git-dir shell stderr template textconv
	to-command tool touch trace trace-ascii upload-pack use-askpass use-compress-program vettool wrapper write`

// shortWritesOrRuns are the one-letter options of that kind, by program; "": of any.
var shortWritesOrRuns = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"": "coOC", "cmake": "DEP", "curl": "KTDEJ", "fd": "xX", "fdfind": "xX", "git": "ux",
		"gradle": "Ibgp", "gradlew": "Ibgp", "just": "fd", "make": "fEIt", "gmake": "fEIt",
		"ninja": "f", "rake": "f", "sort": "T", "wget": "Pae",
	}
})

// setting matches a word that sets a variable, as for make and dd, and an address that
// makes git run a program.
var setting = lazyregexp.New(`^[A-Za-z_]\w*[:+?]?=|^[A-Za-z0-9-]+::`)

// isDangerous reports whether a word for a program may be an option that writes a file
// or runs a program.
func isDangerous(program, word string) bool {
	isFormat := program == "git" && formatOption.MatchString(word)
	if program == "git" && gitRuns.MatchString(word) || isFormat && !gitFormat.MatchString(word) {
		return true
	}
	if !strings.HasPrefix(word, "-") {
		return setting.MatchString(word) || (program == "make" || program == "gmake") &&
			strings.Contains(word, "=")
	}
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimLeft(word, "-")), "=")
	isSimilar := func(option string) bool {
		return strings.HasPrefix(option, name) || strings.HasPrefix(name, option) ||
			strings.HasSuffix(name, option) && name != "profile"
	}
	if strings.HasPrefix(word, "--") {
		return name != "" && writesOrRuns.hasFunc(isSimilar)
	}
	short, _, _ := strings.Cut(word[1:], "=")
	return strings.ContainsAny(short, shortWritesOrRuns()[""]+shortWritesOrRuns()[program]) ||
		len(name) > 2 && writesOrRuns.hasFunc(isSimilar)
}

// gitRuns matches words for git that make it run gpg, or read files outside the repository.
var gitRuns = lazyregexp.New(`^--(no-in|cont(e.*)?$|show-sig|gpg|verify-s)|%\(\*?signature` +
	`|^(--\w+=)?-?\*?signature(:.*)?$`)

var formatOption = lazyregexp.New(`^--(format|pretty)=`)

// gitFormat matches formats of git that run no program: its own names, and texts without the
// placeholders %G, which run gpg, with space, + or - behind the % too. Any other name could be a
// format of the repository's configuration.
var gitFormat = lazyregexp.New(`(?s)^--(?:` + gitFormats + `)$`)

const gitFormats = `(format|pretty)=(oneline|short|medium|full|fuller|reference|email|mboxrd|raw` +
	`|(t?format:` + gitText + `*)?|[^%]*` + gitPlaceholder + gitText + `*)`

// Parts of a format of git.
const (
	gitPlaceholder = `(%[^G+ -]|%[-+ ][^G%])`
	gitText        = `([^%]|` + gitPlaceholder + `)`
)

// Patterns for harmless words of several commands.
const (
	operandWord = `[^-].*|--?`
	gitShort    = `|-[^-O][^O]*`
	gitWords    = operandWord + gitShort +
		`|--pretty|--` + gitFormats + `|--(oneline|graph|all|branches|tags|remotes` +
		`|(no-)?decorate` +
		`|stat|shortstat|numstat|dirstat|summary|compact-summary|name-only|name-status|patch|no-patch|raw` +
		`|patch-with-stat|(no-)?abbrev|(no-)?abbrev-commit` +
		`|date|since|after|until|before|author|committer|grep|max-count|skip|(no-)?merges|first-parent|reverse` +
		`|(no-)?follow` +
		`|cached|staged|(no-)?color|word-diff|color-words|ignore-space-change|ignore-all-space` +
		`|ignore-blank-lines|diff-filter` +
		`|find-renames|find-copies|no-renames|unified|minimal|patience|histogram|diff-algorithm` +
		`|function-context|(no-)?relative|quiet` +
		`|exit-code|topo-order|date-order|author-date-order|left-right|cherry-pick|full-index|binary` +
		`|no-ext-diff|no-textconv|merge-base|root` +
		`|inter-hunk-context|full-history|ancestry-path|pickaxe-all|pickaxe-regex|not|exclude|walk-reflogs` +
		`|check|text` +
		`|porcelain|short|branch|long|untracked-files|ignored|show-stash|(no-)?ahead-behind|line-porcelain` +
		`|incremental` +
		`|abbrev-ref|show-toplevel|verify|git-dir|is-inside-work-tree|symbolic-full-name|show-prefix|show-cdup` +
		`|modified|deleted|others|stage|exclude-standard|full-name|error-unmatch|unmerged|eol|line-number` +
		`|ignore-case|word-regexp` +
		`|fixed-strings|extended-regexp|perl-regexp|files-with-matches|count|summary|numbered|email|always` +
		`|dirty|long|match)(=.*)?`
	refWords = `--sort=-?(version:|v:)?(refname|\w+date)(:.*)?|--format=([^%]|%\((refname|objectname|upstream|HEAD` +
		`|\w+date|\w+name|\w+email|subject)(:[^)]*)?\))*`
	anyWord = `.*`
	goWords = operandWord +
		`|--?(v|race|short|failfast|cover|json|benchmem|list|run|skip|count|timeout|bench|benchtime|parallel|p` +
		`|cpu|tags|shuffle|vet=off|n|x|all|src|u|cmd|deps|test|e|find|f|m)(=.*)?`
)

// harmless has, for commands that only read, a pattern for each word that may follow
// the words of a rule.
var harmless = sync.OnceValue(func() map[string]*lazyregexp.Regexp {
	m := map[string]string{
		"cd": `[^-].*|-[PL]?`, "command -v": `[\w.+-]+`,
		"date": `\+.*|-[uIR]|--(utc|iso-8601|rfc-3339)(=.*)?`, "diff": operandWord +
			`|-[urNqbBwaiypts0-9]+|-U\d*|--(color|brief|recursive|unified|ignore-all-space|ignore-space-change` +
			`|side-by-side|text|exclude)(=.*)?`,
		"file":    operandWord + `|-[bLik]+|--(brief|mime|mime-type)`,
		"go test": strings.Replace(goWords, "|f|m)", ")", 1), "go vet": operandWord +
			`|--?(v|tags|json|race|n)(=.*)?`,
		"go list": goWords, "go doc": operandWord + `|-(all|src|u|short|cmd|c)`,
		"go version": operandWord + `|-m|-v`, "go env": `[A-Z0-9_a-z]+|-json|-changed`,
		"git branch": `-[alrv]+|--(all|list|remotes|show-current|verbose|merged|no-merged|contains)(=.*)?|` + refWords,
		"git tag":    `-l|-n\d*|--(list|contains|merged)(=.*)?|` + refWords,
		"git remote": `-v|--verbose`, "rg": operandWord +
			`|-[nilwvcSsFHIoLxqU0-9N]+|-[ABCgtTem].*|--(files|count|hidden|line-number|ignore-case|no-heading` +
			`|no-ignore|type|glob|max-count|context|files-with-matches|fixed-strings|word-regexp|sort|json` +
			`|stats)(=.*)?`,
		"sort": operandWord +
			`|-[nrufbhVgMRdisz]+|-[kt].*|--(reverse|unique|numeric-sort|human-numeric-sort|version-sort|ignore-case` +
			`|stable|key|field-separator)(=.*)?`,
		"tree": operandWord +
			`|-[adfhgpsuDCLIP]+|--(dirsfirst|gitignore|noreport|du|si|inodes|prune)`,
		"uniq": `-[cdiuz]+|-[fsw]\d+|--(count|repeated|unique|ignore-case)`,
		"find": operandWord +
			`|[-+]\d+[A-Za-z]?|-(name|iname|path|ipath|wholename|regex|iregex|type|xtype|maxdepth|mindepth|size` +
			`|empty|newer|newermt|mtime|mmin|ctime|cmin|atime|amin` +
			`|perm|user|group|uid|gid|links|inum|samefile|prune|print|print0|printf|ls|o|or|a|and|not|depth|d|L|H|P` +
			`|follow|xdev|mount|quit|true|false|readable|writable|executable|daystart|regextype)`,
	}
	for sub := range strings.FieldsSeq(`
		log status diff show blame shortlog describe rev-parse rev-list ls-files ls-tree merge-base name-rev grep`) {
		m["git "+sub] = gitWords
	}
	// options that read a file
	for sub, reads := range map[string]string{"grep": "f", "blame": "S", "ls-files": "X"} {
		m["git "+sub] = strings.Replace(gitWords, gitShort, `|-[^-O`+reads+`][^O`+reads+`]*`, 1)
	}
	for program := range strings.FieldsSeq(`
		: basename cat cksum cmp column comm cut df dirname du echo egrep expand expr false fgrep fold grep groups
		head hexdump id jq ls lsblk md5sum nl nproc od paste printenv ps pwd readlink realpath rev seq sha1sum
		sha256sum sha512sum sleep stat strings tac tail tr true tty uname unexpand uptime wc which whoami`) {
		m[program] = anyWord
	}
	compiled := make(map[string]*lazyregexp.Regexp, len(m))
	for key, words := range m {
		compiled[key] = lazyregexp.New(`(?s)^(?:` + words + `)$`)
	}
	return compiled
})
