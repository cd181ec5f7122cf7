package tunnelproxy

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/backend"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

// secretInterval is how often a missing Secret is read again.
const secretInterval = 5 * time.Second

// apply takes the steps that are possible now. For a Failed pair it only deletes the remaining objects. The failure is in the
// status before anything of the pair is deleted: otherwise a process that is killed in between would find a pair without proxies,
// and start them again.
func (r *Reconciler) apply(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, out *status.Outcome, problems *outcome.Problems) error {
	if p.Status.State != tunnelv1.StateFailed {
		problems.Add(r.advance(ctx, out, r.Clock.Now()))
	} else if err := r.tidy(ctx, p); err != nil {
		// It is retried, and shows on no condition.
		problems.Add(&outcome.Problem{Class: outcome.InProgress, Err: err})
	}
	return nil
}

// advance takes a live pair as many steps further as possible. It returns the problem that keeps the pair from the next
// step, nil if all is done or the pair has failed.
func (r *Reconciler) advance(ctx context.Context, out *status.Outcome, now time.Time) *outcome.Problem {
	p, o := out.Proxy, &out.Observed
	ran := p.Status.State == tunnelv1.StateRunning
	if reason := status.CheckEnd(*o, r.Config.StartTimeout, now); reason != "" {
		return end(out, tunnelv1.ConditionProxiesReady, reason)
	}
	// A prerequisite that is missing later does not stop a pair that has begun.
	active := ran || o.Client != nil
	out.State = tunnelv1.StatePending
	if problem := status.CheckPrerequisites(*o); problem != nil && !active {
		return problem
	}
	switch {
	case ran:
		out.State = tunnelv1.StateRunning
	case active:
		out.State = tunnelv1.StateStarting
	}
	keys, err := r.credentials.Keys(ctx, p, o.Namespace(), now)
	if err != nil {
		return status.NewProblem(tunnelv1.ConditionProxiesReady, err, r.Namespace)
	}
	out.RequeueAt(keys.Renew, now)
	if ran {
		return r.serve(ctx, out, keys, now)
	}
	if problem := r.awaitRegistry(p, now); problem != nil { //nolint:contextcheck // the job outlives the reconciliation
		out.State = tunnelv1.StatePending
		return problem
	}
	image, problem, fatal := r.ensureImage(ctx, p, now)
	switch {
	case fatal != "":
		return end(out, tunnelv1.ConditionImageReady, fatal)
	case problem != nil && problem.Reason == tunnelv1.ReasonImageNotConfigured:
		out.State = tunnelv1.StatePending
		return problem
	case problem != nil:
		out.State = tunnelv1.StateBuildingImage
		return problem
	}
	out.Image = image
	return r.begin(ctx, out, keys, now)
}

// end has a pair fail. on is the condition that says why.
func end(out *status.Outcome, on, message string) *outcome.Problem {
	out.State, out.End, out.Step = tunnelv1.StateFailed, message, on
	return nil
}

// begin starts the client proxy, and then the server proxy, which must know its address. It returns after each step whose result
// an event reports. The next reconciliation comes here again, and passes the steps that are done.
func (r *Reconciler) begin(ctx context.Context, out *status.Outcome, keys credentials.Keys, now time.Time) *outcome.Problem {
	o := &out.Observed
	out.State = tunnelv1.StateStarting
	starting := func(message string) *outcome.Problem {
		return &outcome.Problem{
			Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonProxiesStarting, Class: outcome.InProgress, Message: "Starting: " + message,
		}
	}
	failed := func(err error) *outcome.Problem {
		return status.NewProblem(tunnelv1.ConditionProxiesReady, err, r.Namespace)
	}
	if o.Client == nil || !podstate.Ready(o.Client) {
		if err := r.credentials.CopyPullSecret(ctx, o.Proxy, o.Namespace()); err != nil {
			return r.withoutPullSecret(out, err, now)
		}
	}
	in, err := r.inputs(ctx, out)
	if err != nil {
		return failed(err)
	}
	if err := r.build(ctx, *out, in); err != nil {
		return failed(err)
	}
	if o.Client == nil {
		if err := backend.CreatePod(ctx, r.Writer, pairobjects.OwnerFor(o.Proxy), manifests.ClientPod(in)); err != nil {
			return failed(err)
		}
		started.Inc()
		out.RequeueAt(now.Add(r.Config.StartTimeout), now)
		return starting("the client proxy is being created") // its events trigger the next reconciliation
	}
	out.RequeueAt(status.StartDeadline(o.Client, r.Config.StartTimeout), now)
	endpoint, known := r.endpoint(*o)
	if !podstate.Ready(o.Client) || !known || o.Host == nil {
		return starting(status.WhyNotReady(*o))
	}
	out.Endpoint, in.Client, in.Host = endpoint, endpoint, o.Host.Name
	// The server proxy is started last: it dials the client proxy, whose address must be known by then.
	if !o.Server.Exists {
		if err := r.backends.For(o.Proxy).Start(ctx, o.Proxy, in, keys); err != nil {
			return failed(status.InOwnNamespace(err))
		}
		return starting("the server proxy is being created")
	}
	if o.Server.Ready == nil {
		return starting(status.WhyNotReady(*o))
	}
	return r.serve(ctx, out, keys, now)
}

// withoutPullSecret handles a start for which the Secret for the registry could not be copied. That Secret is not watched,
// so it is read again.
func (r *Reconciler) withoutPullSecret(out *status.Outcome, err error, now time.Time) *outcome.Problem {
	out.State = tunnelv1.StateBuildingImage
	if out.Client != nil {
		out.State = tunnelv1.StateStarting
		out.RequeueAt(status.StartDeadline(out.Client, r.Config.StartTimeout), now)
	}
	if missing := (*credentials.MissingSecretError)(nil); errors.As(err, &missing) {
		out.RequeueAt(now.Add(secretInterval), now)
		return &outcome.Problem{Condition: tunnelv1.ConditionImageReady, Reason: tunnelv1.ReasonImageRetried, Class: outcome.Retry, Message: missing.Error()}
	}
	return status.NewProblem(tunnelv1.ConditionImageReady, err, r.Namespace)
}

// serve keeps the tunnels of a pair that runs as the spec says.
func (r *Reconciler) serve(ctx context.Context, out *status.Outcome, keys credentials.Keys, now time.Time) *outcome.Problem {
	o := &out.Observed
	out.State = tunnelv1.StateRunning
	out.Endpoint, _ = r.endpoint(*o)
	if o.Server.Ready == nil {
		return &outcome.Problem{
			Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonControlFailed, Class: outcome.Retry,
			Message: "Finding the port of the server proxy",
		}
	}
	// The files are written each time: the Secret may have been renewed by another leader. WriteFiles changes nothing that is in
	// place.
	if err := r.backends.For(o.Proxy).Renew(o.Proxy, keys); err != nil {
		return &outcome.Problem{Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonWriteFailed, Class: outcome.Retry, Message: err.Error(), Err: err}
	}
	out.Tunnels, out.Current, out.Retrying = tunnelsync.Sync(r.jobs, *o, pairSettings(r.Config, *o), keys.Controller, now) //nolint:contextcheck // the job outlives the reconciliation
	out.Servers = r.traffic.ServerProblems(o.Proxy.UID)
	in, err := r.inputs(ctx, out)
	if err == nil {
		in.Ports = manifests.ReadyPorts(status.Tunnels(*out, now))
		err = r.build(ctx, *out, in)
	}
	return status.NewProblem(tunnelv1.ConditionProxiesReady, err, r.Namespace)
}

// build applies all but pods and Secrets: the policy first, so that no pod runs unconfined.
func (r *Reconciler) build(ctx context.Context, out status.Outcome, in manifests.Inputs) error {
	p := manifests.New(in)
	owner := pairobjects.OwnerFor(out.Proxy)
	if _, err := apply.Apply(ctx, r.Writer, owner, p.Policy); err != nil {
		return err
	}
	for _, s := range p.Services {
		if _, err := apply.Apply(ctx, r.Writer, owner, s); err != nil {
			return err
		}
	}
	return nil
}

// A pod that exists keeps its ports and its kind of image, since pods cannot be changed. Settings that were changed apply to the
// next pair.
func (r *Reconciler) inputs(ctx context.Context, out *status.Outcome) (manifests.Inputs, error) {
	p, o := out.Proxy, out.Observed
	cfg := pairSettings(r.Config, o)
	in := manifests.Inputs{
		UID: p.UID, Name: p.Name, Aliases: p.Spec.Aliases,
		Namespace: o.Namespace(), OperatorNamespace: r.Namespace,
		Image: out.Image, Host: o.HostName, Nodes: manifests.NodeAddresses(o.Host),
		PullSecret: cfg.PullSecret != "",
		Config:     cfg,
		OwnImage:   cfg.Image == "" && cfg.Registry == "",
	}
	if o.Client != nil {
		// The settings may have changed since.
		in.OwnImage = slices.ContainsFunc(o.Client.Spec.Containers, manifests.RunsOwnImage)
	}
	if cfg.Image == "" {
		// The operator builds images of its own program.
		in.Architecture = runtime.GOARCH
	}
	if cfg.Publish != config.PublishHostPort {
		return in, nil
	}
	if in.HostPorts = o.Published; o.Published != (manifests.HostPorts{}) {
		return in, nil
	}
	var err error
	in.HostPorts, err = r.hostPorts.reserve(ctx, r.Client, p.UID, r.Config.HostPorts)
	return in, err
}

// endpoint returns where the server proxy finds the client proxy, once that is known.
func (r *Reconciler) endpoint(o status.Observed) (e manifests.Endpoint, known bool) {
	if o.Client == nil {
		return e, false
	}
	e.Control, e.Data = o.Published.Control, o.Published.Data
	switch pairSettings(r.Config, o).Publish {
	case config.PublishPodIP:
		e.Address = o.Client.Status.PodIP
		control, data := pairobjects.Ports(o.Client)
		e.Control, e.Data = control.ContainerPort, data.ContainerPort
	case config.PublishHostPort:
		e.Address = "127.0.0.1"
	case config.PublishNodePort:
		e.Address = manifests.InternalIP(o.Host)
	}
	return e, e.Address != "" && e.Control != 0 && e.Data != 0
}
