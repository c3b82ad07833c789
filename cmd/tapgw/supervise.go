package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"path/filepath"
	"sync"

	"tapgw/configs"
	"tapgw/internal/supervisor"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// launchTools offers the drop-in tools of a directory, as they come and go.
func launchTools(ctx context.Context, r supervisor.Run) error {
	ctx, cancel := context.WithCancel(ctx)
	x := &tools.External{Log: func(file, line string) { r.Line(filepath.Base(file), line) }}
	defer x.Close()
	permit := r.Provider.Permit
	p := provide.New(provide.Options{Name: r.Provider.Name, Provider: *r.Options(), Env: tools.Env{Home: configs.UserDir()},
		Allow: provide.Allow{Tools: permit.Tools, Outside: permit.Outside}})
	first := make(chan struct{})
	offered := sync.OnceFunc(func() { close(first) })
	var watching sync.WaitGroup
	watching.Go(func() {
		x.Watch(ctx, []string{r.Path(r.Provider.Dir)}, func(list []*tools.Tool, faults []tools.Fault) {
			for _, f := range faults {
				r.Line("tapgw", "tool left out: "+f.String())
			}
			if err := p.Offer(ctx, list); err != nil && ctx.Err() == nil {
				r.Line("tapgw", err.Error())
			}
			offered()
		})
	})
	defer watching.Wait()
	defer cancel()
	select { // the first hello has the tools
	case <-first:
	case <-ctx.Done():
		return nil
	}
	return p.Run(ctx)
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
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 || !bytes.Equal(raw[0], own) {
				return errors.New("this is not our own certificate")
			}
			return nil
		},
	}}}
}
