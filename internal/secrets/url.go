package secrets

import "strings"

// longestAuthority bounds the user, the password and the host of a URL.
const longestAuthority = 1024

// inURL finds the secret in a URL, whose scheme ends before start: the password, a key that stands
// in the user's place, or the end of a webhook's path. Its parameters are found by their names.
func inURL(text string, start int) (Span, bool) {
	end := start
	for end < len(text) && end-start < longestAuthority && text[end] > ' ' &&
		strings.IndexByte("/?#\"'`<>\\", text[end]) < 0 {
		end++
	}
	// A placeholder may stand in place of the password, and it has characters that end a URL.
	authority := text[start:end]
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, hasPassword := strings.Cut(authority[:at], ":")
		if hasPassword && password != "" && !isNoSecret(password, "") {
			return Span{start + at - len(password), start + at, Secret}, true
		}
		if !hasPassword && len(user) >= 16 && LooksRandom(user) {
			return Span{start, start + at, Secret}, true
		}
		return Span{}, false
	}
	return ofHook(text, authority, end)
}

// hooks are the hosts whose addresses are secrets, because knowing one is enough to use it, and the
// part of the path before the secret.
var hooks = []struct{ host, path string }{
	{"hooks.slack.com", "/services/"}, {"hooks.slack.com", "/workflows/"},
	{"hooks.slack.com", "/triggers/"},
	{"discord.com", "/api/webhooks/"}, {"discord.com", "/api/v9/webhooks/"},
	{"discord.com", "/api/v10/webhooks/"}, {"discordapp.com", "/api/webhooks/"},
	{"hooks.zapier.com", "/hooks/catch/"}, {"mcp.zapier.com", "/api/mcp/s/"},
	{"mcp.zapier.com", "/api/mcp/a/"}, {"webhook.office.com", "/webhookb2/"},
	{"outlook.office.com", "/webhook/"},
	{"maker.ifttt.com", "/trigger/"}, {"hook.make.com", "/"}, {"hook.eu1.make.com", "/"},
	{"hook.eu2.make.com", "/"}, {"hook.us1.make.com", "/"}, {"hook.us2.make.com", "/"},
	{"hook.integromat.com", "/"},
	{"hooks.airtable.com", "/workflows/"}, {"oapi.dingtalk.com", "/robot/"},
	{"open.feishu.cn", "/open-apis/bot/"},
}

// ofHook finds the secret part of a webhook's path, which begins at i.
func ofHook(text, host string, i int) (Span, bool) {
	for _, h := range hooks {
		if !strings.HasSuffix(host, h.host) || !strings.HasPrefix(text[i:], h.path) {
			continue
		}
		start := i + len(h.path)
		end := wordEnd(text, start)
		if end-start >= 8 {
			return Span{start, end, Secret}, true
		}
	}
	return Span{}, false
}
