package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"sync"

	"tapgw/configs"
	"tapgw/internal/supervisor"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// launchTools offers the drop-in tools of a directory, as they come and go.
func launchTools(ctx context.Context, r supervisor.Run) error {
	x := &tools.External{Log: func(file, line string) { r.Line(filepath.Base(file), line) }}
	if r.Provider.Project != "" {
		x.Check = func(string) error { return configs.Unchanged(r.Provider.Project, r.Provider.File) }
	}
	defer x.Close()
	permit := r.Provider.Permit
	p := provide.New(provide.Options{Name: r.Provider.Name, Provider: *r.Options(), Env: tools.Env{Home: configs.UserDir(),
		Sources: []string{r.Path(r.Provider.Dir), configs.UserDir(), configs.Home()}, Secrets: []string{configs.StateDir()}},
		Allow: provide.Allow{Tools: permit.Tools, Outside: permit.Outside, Where: "permit.%s in " + filepath.Base(r.Provider.File)}})
	var mu sync.Mutex // guards the fields that follow
	var broken []configs.Fault
	var refusal error
	report := func() { // call with mu held
		faults := slices.Clone(broken)
		if refusal != nil {
			faults = append(faults, configs.Fault{File: r.Provider.File, Line: 1, Column: 1, Message: refusal.Error()})
		}
		r.Faults(faults)
	}
	watch := func(ctx context.Context, offer func([]*tools.Tool)) {
		var logged []tools.Fault
		x.Watch(ctx, []string{r.Path(r.Provider.Dir)}, func(list []*tools.Tool, faults []tools.Fault) {
			now := make([]configs.Fault, len(faults))
			for i, f := range faults {
				now[i] = configs.Fault{File: f.File, Line: max(f.Line, 1), Column: 1, Message: "tool left out: " + f.Reason}
				if !slices.Contains(logged, f) {
					r.Line("tapgw", "tool left out: "+f.String())
				}
			}
			logged = faults
			mu.Lock()
			broken = now
			report()
			mu.Unlock()
			offer(list)
		})
	}
	return p.RunWith(ctx, watch, func(_ []*tools.Tool, err error) {
		if err != nil {
			r.Line("tapgw", err.Error())
		}
		mu.Lock()
		defer mu.Unlock()
		refusal = err
		report()
	})
}

// clientOf connects to a gateway of this process that serves TLS: its certificate
// need not be one that this machine trusts, but it must be that one.
func clientOf(cert *tls.Config) *http.Client {
	if cert == nil {
		return nil
	}
	own := cert.Certificates[0].Certificate[0]
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // what is checked instead is stronger
		VerifyConnection: func(st tls.ConnectionState) error {
			if len(st.PeerCertificates) == 0 || !bytes.Equal(st.PeerCertificates[0].Raw, own) {
				return errors.New("this is not our own certificate")
			}
			return nil
		},
	}}}
}
