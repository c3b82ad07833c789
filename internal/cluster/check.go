package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/visible"
)

// This file checks the configuration of a cluster: it tries the servers and the rights of the NATS
// user, without joining.

// Statuses of a [Finding].
const (
	FoundOK   = "ok"
	FoundWarn = "warn"
	FoundFail = "fail"
)

// Finding is one result of [Check]. Cure tells the reader how to fix it; it is "" if all is well.
type Finding struct {
	Check, Status, Detail, Cure string
}

// CheckOptions say as whom [Check] looks.
type CheckOptions struct {
	Name   string
	Admit  []string // names of the admitted gateways
	Keeps  bool     // streams of it last
	Server Server
}

// kindCheck is the kind of subjects without listeners: a check tries on them which rights the NATS
// user has.
const kindCheck = ".check"

// Check reports which servers a gateway can reach, and which rights its NATS user has there. It
// changes nothing.
func Check(ctx context.Context, o CheckOptions) (found []Finding) {
	add := func(check, status, cure, format string, args ...any) {
		found = append(found, Finding{check, status, fmt.Sprintf(format, args...), cure})
	}
	var conn *nats.Conn
	faults := &faultLog{}
	for _, address := range o.Server.URLs {
		shown := redacted(address)
		c, err := o.connect(address, faults)
		switch {
		case err != nil && strings.HasPrefix(err.Error(), "cluster."):
			add("files", FoundFail, "correct the path in [cluster]", "%v", err)
			return found
		case err != nil:
			add("server "+shown, FoundFail, cureOf(err), "%v", withoutSecrets(err, o.Server.URLs))
			continue
		}
		rtt, _ := c.RTT()
		add("server "+shown, FoundOK, "", "nats-server %s, round trip %s, messages up to %d KiB",
			c.ConnectedServerVersion(), rtt.Round(10*time.Microsecond), c.MaxPayload()>>10)
		if conn == nil {
			conn = c
			defer c.Close()
		} else {
			c.Close()
		}
	}
	if conn == nil {
		return found
	}
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Status == FoundOK }) {
		for i := range found { // one server that answers is enough to join
			if found[i].Status == FoundFail {
				found[i].Status = FoundWarn
			}
		}
	}
	found = append(found, checkRights(conn, faults, o)...)
	registry, here := checkRegistry(ctx, conn, o)
	found = append(found, registry...)
	return append(found, checkKeep(ctx, conn, faults, o, here)...)
}

func redacted(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "?"
}

// faultLog keeps the errors that the connection reports.
type faultLog struct {
	mu     sync.Mutex // guards faults
	faults []string
}

func (f *faultLog) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, strings.ToLower(err.Error()))
}

// isDenied reports whether a subject was refused.
func (f *faultLog) isDenied(subject string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.faults, func(text string) bool {
		return strings.Contains(text, "permissions violation") &&
			strings.Contains(text, `"`+strings.ToLower(subject)+`"`)
	})
}

func (o *CheckOptions) connect(address string, faults *faultLog) (*nats.Conn, error) {
	options, err := o.Server.options(o.Name)
	if err != nil {
		return nil, err
	}
	options = append(options, nats.RetryOnFailedConnect(false), nats.MaxReconnects(0),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { faults.add(err) }))
	return nats.Connect(address, options...)
}

func cureOf(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return "check credentials or nkey in [cluster], and the user on the server"
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return "check that the server runs and that this machine reaches it"
	}
	return "check the URL and the tls keys in [cluster]"
}

// checkRights reports which subjects the user may publish to and subscribe to.
func checkRights(conn *nats.Conn, faults *faultLog, o CheckOptions) (found []Finding) {
	const stranger = "tapgw-check" // no gateway's name has to be that of one
	own := []string{subjectRoot + o.Name + ".*" + kindCheck, inbox(o.Name) + kindCheck}
	others := []string{subjectRoot + stranger + ".*" + kindCheck, inbox(stranger) + kindCheck}
	says, lies := subjectRoot+stranger+"."+o.Name+kindCheck,
		subjectRoot+o.Name+"."+stranger+kindCheck
	for _, subject := range slices.Concat(own, others) {
		if sub, err := conn.SubscribeSync(subject); err == nil {
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	for _, subject := range append(o.keepSubjects(), says, lies) {
		_ = conn.Publish(subject, nil) // JetStream does nothing for an empty request
	}
	for range 2 { // the server sends a refusal before its answer to the second request
		if err := conn.FlushTimeout(registryTimeout); err != nil {
			return []Finding{{"rights", FoundFail, err.Error(), "check that the server runs"}}
		}
	}
	time.Sleep(50 * time.Millisecond) // the connection reports a refusal in a goroutine of its own
	add := func(check string, isGood bool, bad, good, fault, cure string) {
		if isGood {
			found = append(found, Finding{check, FoundOK, good, ""})
			return
		}
		found = append(found, Finding{check, bad, fault, cure})
	}
	add("may hear", !slices.ContainsFunc(own, faults.isDenied), FoundFail,
		"what others send to "+o.Name,
		"the NATS user may not hear what others send to "+o.Name,
		"allow it to subscribe to tap."+o.Name+".> and "+inbox(o.Name)+".>")
	add("may speak", !faults.isDenied(says), FoundFail, "as "+o.Name,
		"the NATS user may not speak as "+o.Name, "allow it to publish to tap.*."+o.Name+".>")
	add("speaks for itself only", faults.isDenied(lies), FoundWarn,
		"the server refuses other names",
		"the NATS user may speak in the name of any gateway: the others can't know who it is",
		"give each gateway a NATS user that may publish to tap.*.NAME.> alone (docs/cluster.md)")
	hearsOthers := slices.ContainsFunc(others, func(subject string) bool {
		return !faults.isDenied(subject)
	})
	add("hears its own only", !hearsOthers, FoundWarn, "the server refuses other subjects",
		"the NATS user may hear what is sent to any gateway",
		"give each gateway a NATS user that may subscribe to tap.NAME.> and _INBOX.NAME.> alone "+
			"(docs/cluster.md)")
	return found
}

// keepSubjects are the subjects that the user needs for streams that last: to keep those of this
// gateway, and to read those of the others.
func (o *CheckOptions) keepSubjects() (list []string) {
	if o.Keeps {
		list = append(list, streamCreate+keptStream(o.Name))
		list = append(list, readSubjects(o.Name)...)
	}
	for _, name := range o.Admit {
		list = append(list, readSubjects(name)...)
	}
	return list
}

const streamCreate = "$JS.API.STREAM.CREATE."

// readSubjects are the subjects that a user needs to read the events that a gateway keeps.
func readSubjects(name string) []string {
	return []string{"$JS.API.STREAM.INFO." + keptStream(name),
		"$JS.API.STREAM.MSG.GET." + keptStream(name)}
}

// checkKeep reports which rights the user lacks for streams that last, by the refusals that
// checkRights got.
func checkKeep(
	ctx context.Context, conn *nats.Conn, faults *faultLog, o CheckOptions, here map[string]Beat,
) (found []Finding) {
	missing := func(subjects []string) (denied []string) {
		for _, subject := range subjects {
			if faults.isDenied(subject) {
				denied = append(denied, subject)
			}
		}
		return denied
	}
	add := func(check, good string, denied []string) {
		if len(denied) == 0 {
			found = append(found, Finding{check, FoundOK, good, ""})
			return
		}
		found = append(found, Finding{check, FoundFail, "the NATS user lacks rights",
			"allow it to publish to " + strings.Join(denied, " and ")})
	}
	if o.Keeps {
		own := missing(readSubjects(o.Name))
		// an operator may have made it
		if len(own) > 0 || !isStream(ctx, conn, keptStream(o.Name)) {
			own = append(missing([]string{streamCreate + keptStream(o.Name)}), own...)
		}
		add("keeps", "its streams that last", own)
	}
	for _, name := range o.Admit {
		if here[name].Keeps {
			add("gets what "+name+" keeps", "its streams that last", missing(readSubjects(name)))
		}
	}
	return found
}

// isStream reports whether there is a JetStream stream of a name.
func isStream(ctx context.Context, conn *nats.Conn, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return false
	}
	_, err = js.Stream(ctx, name)
	return err == nil
}

// checkRegistry reads the registry, and says which admitted gateways are there.
func checkRegistry(
	ctx context.Context, conn *nats.Conn, o CheckOptions,
) (found []Finding, here map[string]Beat) {
	ctx, cancel := context.WithTimeout(ctx, 2*registryTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return []Finding{{"registry", FoundFail, err.Error(), ""}}, nil
	}
	kv, err := js.KeyValue(ctx, bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		found = append(found,
			Finding{"registry", FoundOK, "there is none yet: the first gateway makes it", ""})
	case err != nil:
		return []Finding{{"registry", FoundFail, "the KV bucket " + bucket + ": " + err.Error(),
			"turn JetStream on at the servers, and allow the user its API for the bucket " +
				"(docs/cluster.md)"}}, nil
	default:
		if here, err = entries(ctx, kv); err != nil {
			return []Finding{{"registry", FoundFail, "the KV bucket " + bucket + ": " + err.Error(),
				"allow the user to watch the bucket (docs/cluster.md)"}}, nil
		}
		names := "no gateway is there"
		if len(here) > 0 {
			list := []string{}
			for name := range here {
				list = append(list, name)
			}
			slices.Sort(list)
			names = strings.Join(list, ", ")
		}
		found = append(found, Finding{"registry", FoundOK, names, ""})
	}
	for _, name := range o.Admit {
		b, isHere := here[name]
		if isHere {
			detail := "is there, version " + visible.Line(b.Version)
			found = append(found, Finding{"gateway " + name, FoundOK, detail, ""})
			continue
		}
		found = append(found, Finding{"gateway " + name, FoundWarn, "is not there",
			"start it, or check the name in its [cluster]"})
	}
	return found, here
}

// entries reads the bucket.
func entries(ctx context.Context, kv jetstream.KeyValue) (map[string]Beat, error) {
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	found := map[string]Beat{}
	for {
		select {
		case entry := <-w.Updates():
			if entry == nil {
				return found, nil
			}
			var b Beat
			if json.Unmarshal(entry.Value(), &b) == nil {
				found[entry.Key()] = b
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
