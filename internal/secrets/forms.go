package secrets

import (
	"encoding/base64"
	"strings"
	"sync"
)

// Secrets that are found by their own form.

// form describes a token of a service: its prefix, and at least that many letters, digits and
// characters of more behind it. With digits, one of them must be a digit, because words could begin
// with the prefix.
type form struct {
	prefix string
	least  int
	more   string
	digits bool
}

// forms are the tokens of services, as these document them or as the public lists of secret
// scanners (GitHub's supported patterns, GitLab's and gitleaks' rules) give them.
var forms = []form{
	{"ghp_", 16, "", true}, {"gho_", 16, "", true}, {"ghu_", 16, "", true}, {"ghs_", 16, "", true},
	{"ghr_", 16, "", true}, {"github_pat_", 20, "_", false},
	{"glpat-", 16, "_-.", false}, {"gldt-", 16, "_-.", false}, {"glrt-", 16, "_-.", false},
	{"glptt-", 16, "_-.", false}, {"glft-", 16, "_-.", false}, {"glsoat-", 16, "_-.", false},
	{"glcbt-", 16, "_-.", false}, {"glimt-", 16, "_-.", false}, {"glagent-", 16, "_-.", false},
	{"gloas-", 16, "_-.", false},
	{"xoxb-", 10, "-_%", true}, {"xoxp-", 10, "-_%", true}, {"xoxa-", 10, "-_%", true},
	{"xoxs-", 10, "-_%", true},
	{"xoxr-", 10, "-_%", true}, {"xoxe-", 10, "-_%.", true}, {"xoxe.", 10, "-_%.", true},
	{"xoxc-", 10, "-_%", true}, {"xoxd-", 10, "-_%", true}, {"xapp-", 10, "-_%", true},
	{"sk_live_", 10, "_", false}, {"sk_test_", 10, "_", false}, {"rk_live_", 10, "_", false},
	{"rk_test_", 10, "_", false}, {"whsec_", 16, "+/=", false},
	{"sk-live-", 8, "_-", false}, {"sk-test-", 8, "_-", false}, {"sk-proj-", 16, "_-", false},
	{"sk-svcacct-", 16, "_-", false}, {"sk-admin-", 16, "_-", false}, {"sk-ant-", 16, "_-", false},
	{"sk-or-", 16, "_-", false}, {"sk-lf-", 16, "_-", false}, {"sk-", 20, "_", true},
	{"AKIA", 16, "", false}, {"ASIA", 16, "", false}, {"ABIA", 16, "", false},
	{"ACCA", 16, "", false},
	{"LTAI", 12, "", true}, {"AIza", 30, "_-", false}, {"ya29.", 20, "_-", false},
	{"GOCSPX-", 20, "_-", false},
	{"npm_", 30, "", true}, {"pypi-Ag", 16, "_-", false}, {"hf_", 30, "", false},
	{"api_org_", 30, "", false}, {"dckr_pat_", 20, "_-", false}, {"dckr_oat_", 20, "_-", false},
	{"rubygems_", 40, "", true}, {"dop_v1_", 32, "", true}, {"doo_v1_", 32, "", true},
	{"dor_v1_", 32, "", true},
	{"shpat_", 32, "", true}, {"shpca_", 32, "", true}, {"shppa_", 32, "", true},
	{"shpss_", 32, "", true},
	{"sq0atp-", 20, "_-", false}, {"sq0csp-", 40, "_-", false}, {"figd_", 20, "_-", false},
	{"lin_api_", 32, "", false},
	{"ntn_", 40, "", false}, {"secret_", 43, "", true}, {"glsa_", 32, "_", true},
	{"glc_", 32, "+/=", false},
	{"hvs.", 20, "_-", false}, {"hvb.", 20, "_-", false}, {"hvr.", 20, "_-", false},
	{"PMAK-", 20, "-", true},
	{"NRAK-", 20, "", true}, {"sntrys_", 20, "+/=_", false}, {"sntryu_", 32, "", true},
	{"pplx-", 32, "", false},
	{"gsk_", 32, "", true}, {"xai-", 32, "", true}, {"r8_", 30, "", true},
	{"nvapi-", 32, "_-", false}, {"tvly-", 20, "-", true}, {"ctx7sk-", 20, "-", true},
	{"AGE-SECRET-KEY-1", 50, "", false},
	{"ops_eyJ", 40, "+/=", false}, {"ATATT3", 40, "_-=", false}, {"ATCTT3", 40, "_-=", false},
	{"ATBB", 24, "", true},
	{"CFPAT-", 30, "_-", false}, {"dp.pt.", 30, "", false}, {"dp.st.", 30, "._", false},
	{"sbp_", 32, "", true},
	{"sb_secret_", 20, "_-", false}, {"pscale_tkn_", 30, "_-.=", false},
	{"pscale_pw_", 30, "_-.=", false}, {"pscale_oauth_", 30, "_-.=", false},
	{"phx_", 30, "_", true}, {"fm2_", 40, "+/=", false},
	{"fo1_", 30, "_-", false}, {"rnd_", 24, "", true}, {"re_", 24, "_", true},
	{"tskey-", 16, "-", true},
	{"pul-", 40, "", true}, {"EAACEdEose0cBA", 8, "", false}, {"SK", 32, "", true},
	{"key-", 32, "", true},
	{"cio_", 30, "", true}, {"ddog_", 30, "", true}, {"brn_", 30, "", true},
	{"atlasv1.", 30, "_-", false},
	{"squ_", 30, "", true}, {"sqp_", 30, "", true}, {"lsv2_pt_", 30, "_", true},
	{"lsv2_sk_", 30, "_", true},
	{"fc-", 32, "", true}, {"apify_api_", 30, "", true}, {"bb_live_", 16, "_-", false},
	{"e2b_", 32, "", true},
}

// hexForms need hexadecimal digits, of exactly so many: shorter names begin alike.
var hexForms = map[string]int{"SK": 32, "key-": 32, "sbp_": 40}

// byFirst returns the forms by their first byte.
var byFirst = sync.OnceValue(func() *[256][]form {
	var table [256][]form
	for _, f := range forms {
		table[f.prefix[0]] = append(table[f.prefix[0]], f)
	}
	return &table
})

// begins returns the second bytes with which a token goes on, by its first: most words end the
// search here.
var begins = sync.OnceValue(func() *[256]byteSet {
	var table [256]byteSet
	for _, f := range forms {
		table[f.prefix[0]].add(f.prefix[1])
	}
	table['e'].add('y')
	table['S'].add('G')
	table['b'].add('o')
	for c := range 256 {
		if b := byte(c); isAlnum(b) {
			for _, first := range "MNO" {
				table[first].add(b)
			}
			if isDigit(b) {
				for first := '0'; first <= '9'; first++ {
					table[first].add(b)
				}
			}
		}
	}
	return &table
})

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(c byte) { s[c>>6] |= 1 << (c & 63) }

func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// gateways are the beginnings of the tokens of gateways; 32 hexadecimal digits follow.
var gateways = []string{"ext-tok-", "ptk-", "adm-", "tok-", "mcp-"}

// longest bounds the part of a text that is read to recognize a form, in bytes.
const longest = 160

// inRun finds a token that begins in the run of a text from i to end, at its beginning or behind an
// underscore.
func inRun(text string, i, end int) (Span, bool) {
	if at := tokenAt(text, i, end); at > 0 {
		return Span{i, at, Token}, true
	}
	if at := formAt(text, i); at > 0 {
		return Span{i, at, Secret}, true
	}
	return Span{}, false
}

// tokenAt returns the end of a gateway's token that begins at i, or 0 if no token begins there.
func tokenAt(text string, i, end int) int {
	if end-i > 3 || end == len(text) || text[end] != '-' {
		return 0
	}
	for _, prefix := range gateways {
		if !strings.HasPrefix(text[i:], prefix) {
			continue
		}
		at := i + len(prefix)
		if n := countOf(text, at, isHex); n == 32 && (at+n == len(text) || !isName[text[at+n]]) {
			return at + n
		}
	}
	return 0
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }

// countOf returns how many bytes from at on satisfy is, at most longest.
func countOf(text string, at int, is func(byte) bool) (n int) {
	for n < longest && at+n < len(text) && is(text[at+n]) {
		n++
	}
	return n
}

// formAt returns the end of a service's token that begins at i, or 0 if no token begins there.
func formAt(text string, i int) int {
	if i+1 == len(text) || !begins()[text[i]].has(text[i+1]) {
		return 0
	}
	for _, f := range byFirst()[text[i]] {
		if !strings.HasPrefix(text[i:], f.prefix) {
			continue
		}
		at := i + len(f.prefix)
		is := func(c byte) bool {
			return isAlnum(c) || f.more != "" && strings.IndexByte(f.more, c) >= 0
		}
		n := countOf(text, at, is)
		if n < f.least || f.digits && !strings.ContainsAny(text[at:at+n], "0123456789") {
			continue
		}
		if want := hexForms[f.prefix]; want > 0 && (n != want || countOf(text, at, isHex) != n) {
			continue
		}
		if strings.HasSuffix(f.prefix, "IA") && strings.ToUpper(text[at:at+n]) != text[at:at+n] {
			continue
		}
		for at += n; at < len(text) && is(text[at]); at++ {
		}
		return at
	}
	switch c := text[i]; {
	case c == 'e':
		return jwtAt(text, i)
	case c == 'S' && strings.HasPrefix(text[i:], "SG."):
		return partsAt(text, i, []int{2, 16, 16})
	case c == 'M' || c == 'N' || c == 'O': // a bot of Discord
		return partsAt(text, i, []int{23, 6, 27})
	case isDigit(c):
		return telegramAt(text, i)
	case strings.HasPrefix(text[i:], "bot") && i+3 < len(text) && isDigit(text[i+3]):
		return telegramAt(text, i+3)
	}
	return 0
}

// isPart are the characters of base64 in URLs.
func isPart(c byte) bool { return isAlnum(c) || c == '_' || c == '-' }

// partsAt returns the end of a token of several parts with dots between them, each of at least so
// many characters, or 0 if there is no such token.
func partsAt(text string, i int, least []int) int {
	for k, want := range least {
		if k > 0 {
			if i >= len(text) || text[i] != '.' {
				return 0
			}
			i++
		}
		n := countOf(text, i, isPart)
		if n < want || k < len(least)-1 && n > want+60 {
			return 0
		}
		if i += n; n == longest {
			for i < len(text) && isPart(text[i]) {
				i++
			}
		}
	}
	return i
}

// jwtAt returns the end of a JSON Web Token, or 0 if there is no such token. It is two objects in
// base64, and a signature that may have been cut off.
func jwtAt(text string, i int) int {
	if !strings.HasPrefix(text[i:], "eyJ") {
		return 0
	}
	n := 0
	for n < 1024 && i+n < len(text) && isPart(text[i+n]) {
		n++
	}
	at := i + n
	if n < 12 || !strings.HasPrefix(text[at:], ".ey") {
		return 0
	}
	for at++; at < len(text) && (isPart(text[at]) || text[at] == '.' && at+1 < len(text) &&
		isPart(text[at+1])); at++ {
	}
	return at
}

// telegramAt returns the end of a Telegram bot's token, or 0 if there is no such token.
func telegramAt(text string, i int) int {
	n := countOf(text, i, isDigit)
	if at := i + n; n >= 8 && n <= 10 && strings.HasPrefix(text[at:], ":AA") {
		if m := countOf(text, at+1, isPart); m >= 33 && m <= 40 {
			return at + 1 + m
		}
	}
	return 0
}

// isBasic reports whether a text is the user and the password of a header in base64.
func isBasic(text string) bool {
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(data) < 3 {
		return false
	}
	printable := true
	for _, c := range data {
		printable = printable && c >= ' ' && c != 0x7f
	}
	return printable && strings.IndexByte(string(data), ':') >= 0
}

// LooksRandom reports whether a whole word looks like a key of no known form: long, and of small
// and capital letters and digits, or of hexadecimal digits. Checksums look random, too: use it only
// where a person decides, or where a word may be left out without harm.
func LooksRandom(word string) bool {
	var small, capital, digit bool
	for i := range len(word) {
		switch c := word[i]; {
		case isDigit(c):
			digit = true
		case isSmall(c):
			small = true
		case isCapital(c):
			capital = true
		case strings.IndexByte("-_+/=", c) < 0:
			return false
		}
	}
	return digit && (len(word) >= 24 && isHexWord(word) ||
		len(word) >= 16 && small && capital && word[0] != '/')
}
