package configs

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFaultsOfCluster(t *testing.T) {
	const urls = "[cluster]\nurls = [\"nats://h:4222\"]\nname = \"a\"\n"
	testFaults(t, []faultCase{
		{"no name", "[cluster]\nurls = [\"nats://h\"]",
			[]string{"2:1: cluster.urls: needs name beside it"}},
		{"no servers", "[cluster]\nname = \"a\"",
			[]string{"2:1: cluster.name: needs urls beside it"}},
		{"share without servers", "[cluster]\nshare = [\"*\"]",
			[]string{"2:1: cluster.share: needs urls beside it"}},
		{"not of NATS", "[cluster]\nurls = [\"http://h\", \"h:4222\", \"nats://\"]\nname = \"a\"",
			[]string{
				`cluster.urls[0]: "http://h" is not a URL such as nats://host:4222`,
				`cluster.urls[1]: `,
				`cluster.urls[2]: "nats:" is not`,
			}},
		{"a password in a wrong URL", "[cluster]\nurls = [\"http://u:secret@h\"]\nname = \"a\"",
			[]string{`"http://u:xxxxx@h" is not a URL`}},
		{"a name that is no token of a subject", "[cluster]\nurls = [\"nats://h\"]\nname = \"a.b\"",
			[]string{`3:1: cluster.name: "a.b" is not a gateway's name`}},
		{"two keys", urls + "credentials = \"c\"\nnkey = \"n\"",
			[]string{"5:1: cluster.nkey: stands beside credentials"}},
		{"half a certificate", urls + "tls_cert = \"c\"",
			[]string{"4:1: cluster.tls_cert: needs tls_key beside it"}},
		{"the other half", urls + "tls_key = \"c\"",
			[]string{"4:1: cluster.tls_key: needs tls_cert beside it"}},
		{"an empty glob", urls + "share = [\"\"]", []string{`cluster.share[0]: "" is not a glob`}},
		{"trust that is none", urls + "admit = { b = \"internal\", c = 1 }", []string{
			`cluster.admit.b: "internal" is not one of "project", "external"`,
			`cluster.admit.c: must be a string, found a whole number`,
		}},
		{"itself", urls + "[cluster.admit]\na = \"project\"",
			[]string{`5:1: cluster.admit.a: is this gateway's own name`}},
		{"control of a stranger", urls + "control = [\"b\"]",
			[]string{`4:1: cluster.control: "b" is not in admit`}},
		{"a stream of no name",
			urls +
				"keep = { streams = [\"Builds\", \"@ci\", \"a@b@c\", \"ok@*\"], max_age = \"1s\" }",
			[]string{
				`cluster.keep.streams[0]: "Builds" is not STREAM or STREAM@PROVIDER`,
				`cluster.keep.streams[1]: "@ci"`,
				`cluster.keep.streams[2]: "a@b@c"`, `cluster.keep.max_age: 1s is not from`,
			}},
		{"keep without servers", "[cluster.keep]\nstreams = [\"builds\"]",
			[]string{"cluster.keep: needs urls beside it"}},
		{"providers without end", urls + "max_each = 1001", []string{`4:1: cluster.max_each: `}},
		{"providers without servers", "[cluster]\nmax_each = 1",
			[]string{"2:1: cluster.max_each: needs urls beside it"}},
		{"unknown", urls + "user = 1", []string{"4:1: unknown key cluster.user"}},
	})
}

// A change of the cluster waits for the next start, and is named.
func TestChangedCluster(t *testing.T) {
	before, after := Default(), Default()
	after.Cluster = Cluster{URLs: []string{"nats://h"}, Name: "a",
		Admit: map[string]string{"b": AdmitProject}, Keep: before.Cluster.Keep}
	want := []string{"cluster.urls", "cluster.name", "cluster.admit"}
	if diff := cmp.Diff(want, Changed(before, after)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCluster(t *testing.T) {
	c, faults := Parse("/etc/f.toml", []byte(`[cluster]
urls = ["nats://u:p@h:4222", "tls://i"]
name = "laptop"
credentials = "laptop.creds"
share = ["*"]
control = ["gpu-box"]
max_each = 8
admit = { gpu-box = "project", ci = "external" }
keep = { streams = ["builds@*", "deploy-*"], max_events = 50 }`))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := Cluster{
		URLs: []string{"nats://u:p@h:4222", "tls://i"}, Name: "laptop",
		Credentials: "/etc/laptop.creds", Share: []string{"*"}, Control: []string{"gpu-box"},
		MaxEach: 8, Admit: map[string]string{"gpu-box": AdmitProject, "ci": AdmitExternal},
		Keep: ClusterKeep{Streams: []string{"builds@*", "deploy-*"}, MaxAge: 24 * time.Hour,
			MaxEvents: 50,
			MaxBytes:  64 << 20},
	}
	if diff := cmp.Diff(want, c.Cluster); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !filepath.IsAbs(c.Cluster.Credentials) || !c.Cluster.Enabled() {
		t.Errorf("%+v, want an absolute path, and a gateway that joins others", c.Cluster)
	}
}
