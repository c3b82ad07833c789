package assembly

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/cluster"
	"tapgw/internal/gateway"
	"tapgw/internal/server"
)

// joinCluster joins the other gateways if the config has a cluster.
func (p *Process) joinCluster(c configs.Cluster, home string) error {
	if !c.Enabled() {
		return nil
	}
	admit := map[string]gateway.Trust{}
	for name, trust := range c.Admit {
		admit[name] = gateway.Trust(trust)
	}
	persist := server.Persist{Dir: filepath.Join(home, "providers")}
	joined, err := cluster.Join(cluster.Options{
		Gateway: p.gateway, Log: p.log, Version: p.info.Version, Name: c.Name, Share: c.Share,
		Admit:      admit,
		PersistDir: persist.Make, ReadFile: persist.Read, Control: c.Control,
		API:    p.server.GatewaysAPI(),
		Record: p.records.Record, Keeper: p.keeper, StateFile: p.state.KeptEvents(),
		Flush:   p.records.Flush,
		Changed: p.supervisor.ElsewhereChanged,
	}, natsServer(c))
	if err != nil {
		return err
	}
	p.cluster, p.members.Joined = joined, joined
	return nil
}

// keeperOf makes the keeper of the streams that the config keeps; nil if it keeps no stream.
func keeperOf(c configs.Cluster) *cluster.Keeper {
	return cluster.NewKeeper(cluster.Keep{Streams: c.Keep.Streams, MaxAge: c.Keep.MaxAge,
		MaxEvents: int64(c.Keep.MaxEvents), MaxBytes: int64(c.Keep.MaxBytes)})
}

// sessionsElsewhere returns the sessions of other gateways that a provider may serve.
func (p *Process) sessionsElsewhere(provider string) []adminapi.Session {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Elsewhere(provider)
}

func natsServer(c configs.Cluster) cluster.Server {
	return cluster.Server{URLs: c.URLs, Credentials: c.Credentials, NKey: c.NKey, CA: c.TLSCA,
		Cert: c.TLSCert, Key: c.TLSKey}
}

// leaveCluster leaves the cluster, if the gateway has joined one.
func (p *Process) leaveCluster() {
	if p.cluster != nil {
		p.cluster.Close()
	}
}

// clusterOf is the cluster for the server. The gateway joins it, and sets Joined, before it
// listens.
type clusterOf struct{ *cluster.Joined }

// Connect implements [server.Cluster].
func (c *clusterOf) Connect(p gateway.Peer, o gateway.ConnOptions) server.ProviderConn {
	return c.Joined.Connect(p, o)
}

// Providers implements [server.Cluster].
func (c *clusterOf) Providers() []adminapi.Provider { return c.Abroad() }

// CheckCluster checks how a gateway with these settings would join others. It returns each finding
// as a finished check.
func CheckCluster(ctx context.Context, c configs.Cluster) (checks []cli.Check) {
	add := func(name string, r cli.Result) {
		checks = append(checks, cli.Check{Name: name, Run: func(context.Context) cli.Result {
			return r
		}})
	}
	for _, f := range cluster.Check(ctx, cluster.CheckOptions{
		Name: c.Name, Admit: slices.Sorted(maps.Keys(c.Admit)), Server: natsServer(c),
		Keeps: len(c.Keep.Streams) > 0,
	}) {
		add(f.Check, cli.Result{Status: cli.Status(f.Status), Detail: f.Detail, Cure: f.Cure})
	}
	add("share", describeShare(c))
	return checks
}

func describeShare(c configs.Cluster) cli.Result {
	switch {
	case len(c.Admit) == 0:
		return cli.Warn("write the others' names and trust into [cluster.admit]",
			"no gateway is admitted")
	case len(c.Share) == 0:
		return cli.Warn(`write globs into share, such as share = ["*"]`,
			"nothing is shared: admitted gateways see no session and no provider of this one")
	}
	quoted := make([]string, len(c.Share))
	for i, glob := range c.Share {
		quoted[i] = fmt.Sprintf("%q", glob)
	}
	return cli.OK("sessions and providers that match %s", strings.Join(quoted, ", "))
}
