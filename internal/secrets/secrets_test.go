package secrets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Parts of the examples.
const (
	hex32 = "0123456789abcdef0123456789abcdef"
	mixed = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7d" // 40 characters
	jwt   = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.s5Dq2yRk8Lw_x-3"
	pem   = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----"
)

// withSecret are texts with one secret between « and », as people, programs and services write
// them.
var withSecret = []string{
	// Forms of services.
	"git clone with «ghp_" + mixed[:36] + "» now",
	"«gho_" + mixed[:36] + "»", "«ghu_" + mixed[:36] + "»", "«ghs_" + mixed[:36] + "»", "«ghr_" +
		mixed[:36] + "»",
	"«github_pat_11ABCDEFG0" + mixed + "_" + mixed + "»",
	"«glpat-aB3dE5fG7hJ9kL1mN3pQ»", "«glrt-t1_aB3dE5fG7hJ9kL1mN3pQ»", "«glptt-" + mixed + "»",
	"«xoxb-123456789012-1234567890123-aB3dE5fG7hJ9kL1mN3pQ5rS7»", "«xoxp-1234567890-1234567890»",
	"«xapp-1-A012345-1234567890-abcdef»",
	"«sk_live_aB3dE5fG7hJ9kL1mN3pQ5rS7»", "«rk_test_aB3dE5fG7hJ9kL1mN3pQ5rS7»",
	"«whsec_aB3dE5fG7hJ9kL1mN3pQ5rS7»",
	"«sk-live-abcdef123456»", "«sk-proj-" + mixed + "_" + mixed + "»", "«sk-ant-api03-" + mixed +
		"-AA»",
	"«sk-" + mixed + "»",
	"aws «AKIAIOSFODNN7EXAMPLE» here", "«ASIAIOSFODNN7EXAMPLE»",
	"AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
	"aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
	"«AIza" + mixed[:35] + "»", "«ya29.a0" + mixed + "»", "«GOCSPX-" + mixed[:28] + "»",
	"//registry.npmjs.org/:_authToken=«npm_" + mixed[:36] + "»", "«pypi-AgEIcHlwaS5vcmc" + mixed +
		"»",
	"«hf_" + strings.Repeat("aBcDe", 7) + "»", "«SG." + mixed[:22] + "." + mixed + "abc»", "«SK" +
		hex32 + "»",
	"TWILIO_AUTH_TOKEN=«" + hex32 + "»", "«1234567890:AA" + mixed[:33] + "»",
	"https://api.telegram.org/«bot1234567890:AA" + mixed[:33] + "»/getMe",
	"«M" + mixed[:23] + "." + mixed[:6] + "." + mixed[:27] + "»",
	"«" + jwt + "»", "token «" + jwt + "», then", "«" + pem + "»", "key:\n«" + pem + "»\nend",
	"«-----BEGIN RSA PRIVATE KEY-----\nMIIE cut off»",
	"«dop_v1_" + hex32 + hex32 + "»", "«shpat_" + hex32 + "»", "«hvs." + mixed + "»", "«dckr_pat_" +
		mixed[:27] + "»",
	"«glsa_" + mixed[:32] + "_0123abcd»", "«gsk_" + mixed + "aB3d»", "«nvapi-" + mixed + "»",
	"«figd_" + mixed + "»", "«lin_api_" + mixed + "»", "«sbp_" + hex32 + "01234567»", "«ATATT3" +
		mixed + mixed + "»",
	"«r8_" + mixed[:37] + "»",
	"«AGE-SECRET-KEY-1" + strings.Repeat("QPZRY9", 9) + "QPZR»", "«sq0atp-" + mixed[:22] + "»",
	"«xai-" + mixed + mixed + "»",
	// Tokens of gateways.
	"«ptk-" + hex32 + "»", "a «adm-" + hex32 + "».", "«mcp-" + hex32 + "»", "«ext-tok-" + hex32 +
		"»",
	"\"«tok-" + hex32 + "»\"",
	// URLs.
	"psql postgresql://u:«pw»@db.example/app", "redis://:«pw»@cache:6379/0",
	"mongodb+srv://app:«p4ss»@c.example/?x=1",
	"amqp://guest:«gu-est»@mq", "https://x-access-token:«abc123»@github.com/o/r.git",
	"https://«" + mixed + "»@h.example/r",
	"mysql://root:«p%40ss»@localhost/x", "https://h.example/x?token=«abcdef»&a=b",
	"https://h.example/?a=b&api_key=«k1»",
	"https://maps.example/js?key=«abcdef123456»&v=3",
	"https://h.example/?access_token=«t0ken»#frag",
	"https://a.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig=«aB3dE5fG7hJ9%2Bk%3D»&se=x",
	"https://b.s3.amazonaws.com/k?X-Amz-Date=x&X-Amz-Signature=«" + hex32 + hex32 + "»",
	"https://f.azurewebsites.net/api/x?code=«aB3dE5fG7hJ9kL1mN3pQ==»",
	"https://hooks.slack.com/services/«T00000000/B00000000/aB3dE5fG7hJ9kL1mN3pQ5rS7»",
	"https://discord.com/api/webhooks/«123456789012345678/aB3d_E5fG7hJ9»",
	"https://canary.discord.com/api/v10/webhooks/«123456789012345678/aB3d_E5fG7hJ9»",
	"https://hooks.zapier.com/hooks/catch/«123456/abcdef»",
	"npx mcp-remote https://mcp.zapier.com/api/mcp/s/«" + mixed + "/mcp»",
	"https://x.webhook.office.com/webhookb2/«0123-4567@89ab/IncomingWebhook/0123»",
	// Connection strings.
	"Server=db;User Id=sa;Password=«p4ss word-less»;Encrypt=true",
	"Server=db;Uid=sa;Pwd=«hunter2»;",
	"host=db password=«hunter2» user=x",
	"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«" + mixed + mixed +
		"==»;EndpointSuffix=core.windows.net",
	"Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«" + mixed +
		"=»",
	// Headers.
	"curl -H 'Authorization: Bearer «abc.DEF-123456»' http://h",
	"Authorization: Basic «dXNlcjpwYXNzd29yZA==»", "authorization: token «abcdef»",
	"Proxy-Authorization: Basic «dXNlcjpwYXNzd29yZA==»",
	"-H \"X-API-Key: «abc12345»\"",
	"X-Auth-Token: «a1b2c3d4»", "Cookie: «sid=abc; theme=dark»",
	"{\"Authorization\":\"Bearer «abc»\"}",
	"bearer «abcd1234»",
	"--header Authorization:«abcdef»", "curl -u user:«pa55» http://h",
	"curl --user user:«pa55» http://h",
	// Flags, variables and members.
	"deploy --password «hunter2» --to x", "x --api-key «abc» y", "x --api-key=«abc»",
	"x --token='«a b»'",
	"x --client-secret \"«abc»\"",
	"GH_TOKEN=«abc» gh pr list", "export OPENAI_API_KEY=«abc»", "DB_PASS=«abc» run",
	"PGPASSWORD=«abc» psql",
	"docker run -e MYSQL_ROOT_PASSWORD=«abc» x",
	"SECRET_KEY_BASE=«" + hex32 + "»", "{\"password\": \"«correct horse»\"}",
	"{'api_key': '«abc»'}",
	"{\\\"token\\\":\\\"«abc»\\\"}",
	"password: «hunter2»", "clientSecret: «abc123»", "dbPassword=«abc»", "apiKey = \"«abc»\"",
	// Signs with which references begin, too.
	"https://u:«$up3r-S3cret!»@h.example/x", "https://u:«*st4r!»@h.example", "https://u:«-d4sh»@h",
	"https://u:«@t!1»@h",
	"http://u:«{br4ce»@h", "{\"password\":\"«$ecr3t!»\"}", "{\"password\":\"«-abc123»\"}",
	"password: \"«[x!1»\"",
	"{\"password\":\"«<abc123!»\"}", "{\"password\":\"«$2b$10$N9qo8uLOickgx2ZMRZoMye»\"}",
	"password=«youreout99»",
	"{\"auths\":{\"h\":{\"auth\":\"«dXNlcjpwYXNz»\"}}}",
	"--key «aB3dE5fG7hJ9kL1m»", "token := \"«abc»\"",
}

// withoutSecret are texts that look like some of these and have none.
var withoutSecret = []string{
	"9fceb02d0ae598e95dc970b74767f19372d61af8", "git show 9fceb02",
	"commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
	"550e8400-e29b-41d4-a716-446655440000", "sha256:" + hex32 + hex32, hex32, "md5 " + hex32,
	"h1:" + mixed + "aB=",
	"--authentication azcli", "--auth-timeout 60", "--token-limit 4096",
	"--key-file ~/.ssh/id_ed25519",
	"--private-key-path key.pem",
	"max_tokens: 4096", "max_tokens=4096", "\"max_tokens\": 4096", "total tokens: 123456",
	"tokens=12345678",
	"--max-tokens 100",
	"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
	"v1.2.3-rc.1+build.20240101", "npx -y @scope/pkg@1.2.3",
	"@modelcontextprotocol/server-filesystem@2025.8.21",
	"https://github.com/owner/repo/blob/main/internal/x.go#L10-L20",
	"https://h.example/a?page=2&sort=key&q=token",
	"ssh://git@github.com/o/r.git",
	"git@github.com:owner/repo.git", "http://localhost:9400/api/v1/sessions",
	"https://h.example/@user/post",
	"https://u@h.example/", "postgresql://u@db.example/app", "--dsn=mysql://app_user@db/x",
	"/home/user/projects/Very-Long_Name/src/main/java/com/example/Service2Impl.java",
	"C:\\Users\\x\\Token\\file.txt",
	"--token ${TOKEN}", "--token $TOKEN", "TOKEN=$(cat f)", "GH_TOKEN=${GH_TOKEN}",
	"Authorization: Bearer ${TOKEN}",
	"Authorization:${AUTH_HEADER}",
	"postgresql://u:${PW}@db/app", "postgresql://u:$PW@db", "postgres://user:<password>@h",
	"--api-key <your-token>",
	"API_KEY=your-api-key",
	"token: YOUR_TOKEN", "password=", "--password", "--password-stdin", "--token=", "password: ***",
	"password=xxxxx",
	"Bearer <secret>",
	"--api-key %API_KEY%", "token={{ secrets.TOKEN }}", "TOKEN_FILE=/run/secrets/token",
	"SECRET_NAME=db",
	"AWS_ACCESS_KEY_ID_FILE=x",
	"PASSWORD_FILE=/run/x", "--token /run/secrets/token", "the token: unexpected end of input",
	"invalid token: expected }", "a bearer token of the gateway",
	"basic authentication is off", "Bearer authentication", "secrets are kept apart",
	"password is required", "password: string", "if token == other {",
	"token := parser.Next()", "token = self.token", "password=getpass()",
	"next_page_token=abcdef123", "stop_token=</s>", "progressToken: 12345678",
	"public_key=" + mixed, "cache-key: " + hex32, "key: value", "primary key (id)", "key=name",
	"monkey=banana", "keyboard: us-intl", "author: Jane Doe",
	"authority=h.example", "bypass=true", "compass: north", "PWD=/home/user/x", "OLDPWD=/tmp/y",
	"-p 8080:80", "docker run -u 1000:1000 x", "mkdir -p a/b",
	"risk-assessment-of-the-whole-project-2024", "task-list-and-more-and-more", "sk-learn",
	"npm_config_registry=https://registry.npmjs.org/", "hf_transfer",
	"--- PASS: TestFoo (0.00s)", "PASS: TestReadFrame64BitLengths", "password: *default_pw",
	"curl --token @token.txt",
	"--token --verbose", "password=$HOME/.pw", "password=$user->password", "TOKEN=$A:$B",
	"secret = -1",
	"--password -v",
	"password: [REDACTED]", "\"password\":\"{password}\"", "password=$1", "your_token=yourtoken",
	"token: yourtoken",
	"\"auth\":\"github\"", "password := *flagValue", "Password: [hidden by config]",
	"token: @token", "pass $ENV:PW",
	"ghp_short", "AKIA is a prefix", "eyJ is a prefix", "SG.x.y", "ptk-0123",
	"mcp-server-name-with-many-parts", "adm-" + hex32 + "0",
	"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
	"-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "std::token::kind", "a:b",
	"12:34:56",
	"1234567890:BB", "password", "token", "", "=", ":", "://", "://@", "--",
	"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG" + mixed, "ghcr.io/owner/image:tag@sha256:" + hex32 +
		hex32,
	"token_type=bearer", "grant_type=password&x=1",
	"auth: none", "--auth none", "--session main", "session=build-7", "code=200", "exit code: 1",
	"signature: func(a int) error",
}

// mark puts the secrets of a text between « and ».
func mark(text string) string {
	return Replace(text, func(_, secret string) string { return "«" + secret + "»" })
}

func plain(marked string) string { return strings.NewReplacer("«", "", "»", "").Replace(marked) }

func TestSecretsAreFound(t *testing.T) {
	for _, want := range withSecret {
		want = strings.Replace(want, "p4ss word-less", "p4ss-word", 1)
		if got := mark(plain(want)); got != want {
			t.Errorf("%q: got %q, want %q", plain(want), got, want)
		}
	}
	if len(withSecret) < 60 || len(withoutSecret) < 60 {
		t.Errorf("%d forms with a secret and %d without, want 60 of each", len(withSecret),
			len(withoutSecret))
	}
}

func TestOtherTextsStay(t *testing.T) {
	for _, text := range withoutSecret {
		if got := Redact(text); got != text {
			t.Errorf("%q: got %q, want it as it is", text, got)
		}
	}
}

// Several secrets of one text are all found.
func TestRedact(t *testing.T) {
	text := "curl -H 'Authorization: Bearer abcd1234' 'https://u:pw@h/?token=abc&x=1' --password 'a b' # adm-" + hex32
	want := "curl -H 'Authorization: Bearer <secret>' 'https://u:<secret>@h/?token=<secret>&x=1' " +
		"--password '<secret>' # <token>"
	if got := Redact(text); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReplaceMember(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"password", "correct horse", "«correct horse»"},
		{"Authorization", "Bearer abc", "Bearer «abc»"},
		{"token", "${TOKEN}", "${TOKEN}"}, {"command", "x --token abc", "x --token «abc»"},
		{"maxTokens", "12", "12"}, {"key", "name", "name"}, {"apiKey", "abc", "«abc»"},
		{"", "abc", "abc"}, {"token", "", ""},
	} {
		got := ReplaceMember(tc.name, tc.text, func(_, secret string) string {
			return "«" + secret + "»"
		})
		if got != tc.want {
			t.Errorf("%s %q: got %q, want %q", tc.name, tc.text, got, tc.want)
		}
	}
}

func TestLooksRandom(t *testing.T) {
	for word, want := range map[string]bool{
		mixed: true, hex32: true, "550e8400-e29b-41d4-a716-446655440000": true, "azcli": false,
		"60":               false,
		"@scope/pkg@1.2.3": false, "/usr/lib/X11/aB3dE5fG7hJ9": false,
		"some-long-name-of-a-server": false, "": false,
	} {
		if got := LooksRandom(word); got != want {
			t.Errorf("%q: %v, want %v", word, got, want)
		}
	}
}

// FuzzRedact: whatever the text is, its spans are in order, and a second pass changes nothing.
func FuzzRedact(f *testing.F) {
	for _, text := range slices.Concat(withSecret, withoutSecret) {
		f.Add(plain(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		at := 0
		for _, s := range Find(text) {
			if s.Start < at || s.End <= s.Start || s.End > len(text) {
				t.Fatalf("%q: spans %v, want them in order", text, Find(text))
			}
			at = s.End
		}
		once := Redact(text)
		if twice := Redact(once); twice != once {
			t.Errorf("%q: once %q, twice %q, want the same", text, once, twice)
		}
		_ = RedactMember(text, text)
	})
}

// Texts that make a careless search slow take time in proportion to their length.
func TestLinearTime(t *testing.T) {
	took := func(part string, size int) time.Duration {
		text := strings.Repeat(part, size/len(part))
		least := time.Hour
		for range 3 {
			begin := time.Now()
			Find(text)
			least = min(least, time.Since(begin))
		}
		return least
	}
	for _, part := range []string{
		"sk-", "token=", "a-", "a.", "://", "://a:b", "eyJ", "eyJhbGciOiJI.ey",
		"-----BEGIN PRIVATE KEY", "-----BEGIN x-----", "password='",
		"curl -u ", "ghp_", "xoxb-", "A.", "SG.", "key=\\", "Authorization: ", "1234567890:",
		"bearer ", "aaaaaaaa",
		"\\\"token\\\":", "://a@", "MMMMM",
		"https://h.example/", "--token $", "token=<", "token: a ", "cookie: a", "cookie: ",
		"a-b_c.", "password = a",
		"Cookie='a",
	} {
		small, large := took(part, 64<<10), took(part, 1<<20)
		if large > 100*small+50*time.Millisecond {
			t.Errorf("%q: 64 KiB took %v, 1 MiB %v; want about 16 times as long", part, small,
				large)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	for name, text := range map[string]string{
		"name":    "write_file",
		"command": "git log --oneline -10 && go test ./internal/... -run TestX -count=1",
		"prose": strings.Repeat("The gateway stands between them: it knows what a session is. ",
			1000),
	} {
		b.Run(fmt.Sprint(name, "-", len(text)), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				Redact(text)
			}
		})
	}
}
