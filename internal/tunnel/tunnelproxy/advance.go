package tunnelproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// secretPause is how often a Secret that is missing is looked for.
const secretPause = 5 * time.Second

// Outcome is what one pass saw and did, and all that a status is derived from.
type Outcome struct {
	Observed
	// State is where the pair stands after the pass.
	State tunnelv1.ContainerNetworkTunnelProxyState
	// Problem is what keeps it from the next step; nil when all is done.
	Problem *outcome.Problem
	// End is why it has ended for ever, "" if it has not; Step is the condition on which it shows.
	End, Step string
	// Image is that of the proxies, "" before it is known.
	Image string
	// Client is where the server proxy finds the client proxy.
	Endpoint Endpoint
	// Backend and Publish are how the pair is made.
	Backend config.TunnelBackend
	Publish config.TunnelPublish
	// Tunnels are what the proxies said of them. Current: about all as they are wanted now.
	// Calling: they are being asked.
	Tunnels          Synced
	Current, Calling bool
	// Again is after how long time alone will change something, zero for never.
	Again time.Duration
}

func (out *Outcome) stop(state tunnelv1.ContainerNetworkTunnelProxyState, p *outcome.Problem) {
	out.State, out.Problem = state, p
}

// advance takes a live pair as many steps further as it goes now.
func (r *Reconciler) advance(ctx context.Context, out *Outcome, now time.Time) {
	p, o := out.Proxy, &out.Observed
	ran := p.Status.State == tunnelv1.StateRunning
	out.Image = p.Status.ClientProxyContainerImage
	cfg := settingsOf(r.Config, *o)
	out.Backend, out.Publish = cfg.Backend, cfg.Publish
	if out.End = checkEnd(*o, r.Config.StartTimeout, now); out.End != "" {
		out.State, out.Step = tunnelv1.StateFailed, tunnelv1.ConditionProxiesReady
		return
	}
	begun := ran || o.Client != nil
	if problem := checkPrerequisites(*o); problem != nil && !begun {
		out.stop(tunnelv1.StatePending, problem)
		return
	}
	state := tunnelv1.StatePending
	switch {
	case ran:
		state = tunnelv1.StateRunning
	case begun:
		state = tunnelv1.StateStarting
	}
	keys, err := r.keys(ctx, p, o.namespace(), now)
	if err != nil {
		out.stop(state, problemOf(tunnelv1.ConditionProxiesReady, err, r.Namespace))
		return
	}
	out.wakeAt(keys.Renew, now)
	if ran {
		r.serve(ctx, out, keys, now)
		return
	}
	if problem, again := r.awaitRegistry(p, now); problem != nil { //nolint:contextcheck // the work outlives the pass
		out.stop(tunnelv1.StatePending, problem)
		if !again.IsZero() {
			out.wakeAt(again, now)
		}
		return
	}
	image, problem, fatal := r.ensureImage(p, now) //nolint:contextcheck // the work outlives the pass
	switch {
	case fatal != "":
		out.State, out.End, out.Step = tunnelv1.StateFailed, fatal, tunnelv1.ConditionImageReady
		return
	case problem != nil && problem.Reason == tunnelv1.ReasonImageNotConfigured:
		out.stop(tunnelv1.StatePending, problem)
		return
	case problem != nil:
		out.stop(tunnelv1.StateBuildingImage, problem)
		if problem.Reason == tunnelv1.ReasonImageRetried {
			r.memory.with(p.UID, func(m *remembered) { out.wakeAt(m.imageNext, now) })
		}
		return
	}
	out.Image = image
	r.begin(ctx, out, keys, now)
}

// begin starts the proxies: the client first, since the server needs to know where it is.
func (r *Reconciler) begin(ctx context.Context, out *Outcome, keys Keys, now time.Time) {
	o := &out.Observed
	starting := func(why string) {
		out.stop(tunnelv1.StateStarting, &outcome.Problem{
			Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonProxiesStarting, Class: outcome.InProgress, Message: "Starting: " + why,
		})
	}
	failed := func(err error) {
		out.stop(tunnelv1.StateStarting, problemOf(tunnelv1.ConditionProxiesReady, err, r.Namespace))
	}
	if o.Client == nil || !podReady(o.Client) {
		if err := r.pullSecret(ctx, o.Proxy, o.namespace()); err != nil {
			r.withoutPullSecret(out, err, now)
			return
		}
	}
	in, err := r.inputs(ctx, out)
	if err != nil {
		failed(err)
		return
	}
	if err := r.build(ctx, *out, in); err != nil {
		failed(err)
		return
	}
	if o.Client == nil {
		if err := createPod(ctx, r.Writer, ownerOf(o.Proxy), clientPod(in)); err != nil {
			failed(err)
			return
		}
		started.Inc()
		starting("the client proxy is being created") // its events wake us
		out.wakeAt(now.Add(r.Config.StartTimeout), now)
		return
	}
	out.wakeAt(startDeadline(o.Client, r.Config.StartTimeout), now)
	endpoint, known := r.endpoint(*o)
	if !podReady(o.Client) || !known || o.Host == nil {
		starting(whyNotReady(*o))
		return
	}
	out.Endpoint, in.Client, in.Host = endpoint, endpoint, o.Host.Name
	if !o.Server.Exists {
		if err := r.backendOf(o.Proxy).start(ctx, o.Proxy, in, keys); err != nil {
			failed(inOwnNamespace(err))
			return
		}
		starting("the server proxy is being created")
		return
	}
	if o.Server.Ready == nil {
		starting(whyNotReady(*o))
		return
	}
	r.serve(ctx, out, keys, now)
}

// withoutPullSecret is what becomes of a start without what nodes log in at the registry with.
// Nobody watches that Secret: it is looked for again.
func (r *Reconciler) withoutPullSecret(out *Outcome, err error, now time.Time) {
	state := tunnelv1.StateBuildingImage
	if out.Client != nil {
		state = tunnelv1.StateStarting
		out.wakeAt(startDeadline(out.Client, r.Config.StartTimeout), now)
	}
	if missing := (*missingSecretError)(nil); errors.As(err, &missing) {
		out.stop(state, &outcome.Problem{
			Condition: tunnelv1.ConditionImageReady, Reason: tunnelv1.ReasonImageRetried, Class: outcome.InProgress, Message: missing.Error(),
		})
		out.wakeAt(now.Add(secretPause), now)
		return
	}
	out.stop(state, problemOf(tunnelv1.ConditionImageReady, err, r.Namespace))
}

// serve keeps the tunnels of a pair that runs as they are wanted.
func (r *Reconciler) serve(ctx context.Context, out *Outcome, keys Keys, now time.Time) {
	o := &out.Observed
	out.State = tunnelv1.StateRunning
	out.Endpoint, _ = r.endpoint(*o)
	if o.Server.Ready == nil {
		out.Problem = &outcome.Problem{
			Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonControlFailed, Class: outcome.InProgress,
			Message: "Looks for the port of the server proxy",
		}
		return
	}
	if err := r.backendOf(o.Proxy).renew(o.Proxy, keys); err != nil {
		out.Problem = &outcome.Problem{Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonWriteFailed, Class: outcome.Retry, Message: err.Error(), Err: err}
		return
	}
	var again time.Duration
	out.Tunnels, out.Current, again = r.syncTunnels(*o, keys, now) //nolint:contextcheck // the work outlives the pass
	out.Calling = !out.Current && out.Tunnels.Err == ""
	if again > 0 {
		out.wakeAt(now.Add(again), now)
	}
	in, err := r.inputs(ctx, out)
	if err == nil {
		in.Ports = portsOf(tunnelStatuses(*out, now))
		err = r.build(ctx, *out, in)
	}
	if err != nil {
		out.Problem = problemOf(tunnelv1.ConditionProxiesReady, err, r.Namespace)
	}
}

// build applies what stands beside the pods: the policy first, since no pod runs unconfined.
func (r *Reconciler) build(ctx context.Context, out Outcome, in Inputs) error {
	p := plan(in)
	owner := ownerOf(out.Proxy)
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

func (r *Reconciler) inputs(ctx context.Context, out *Outcome) (Inputs, error) {
	p, o := out.Proxy, out.Observed
	cfg := settingsOf(r.Config, o)
	in := Inputs{
		UID: p.UID, Name: p.Name, Aliases: p.Spec.Aliases,
		Namespace: o.namespace(), OperatorNamespace: r.Namespace,
		Image: out.Image, Host: o.HostName, Nodes: nodeAddresses(o.Host),
		PullSecret: cfg.RegistrySecret != "",
		Config:     cfg,
	}
	if cfg.Image == "" {
		// The operator builds images of its own program.
		in.Architecture = runtime.GOARCH
	}
	if cfg.Publish != config.PublishHostPort {
		return in, nil
	}
	var err error
	in.HostPorts, err = r.chooseHostPorts(ctx, o)
	return in, err
}

// settingsOf returns the settings as they count for a pair: what it was made with stays, whatever
// an administrator has set since. A tunnel must not lead to the kubelet of its host, either.
func settingsOf(cfg config.Tunnel, o Observed) config.Tunnel {
	s := o.Proxy.Status
	cfg.Backend = cmp.Or(config.TunnelBackend(s.ServerProxyBackend), cfg.Backend)
	if o.Client != nil {
		cfg.Publish = cmp.Or(config.TunnelPublish(s.ClientProxyPublish), cfg.Publish)
		control, data := portsOfPod(o.Client)
		cfg.ControlPort, cfg.DataPort = cmp.Or(control, cfg.ControlPort), cmp.Or(data, cfg.DataPort)
	}
	return denyKubelet(cfg, o.Host)
}

// portsOfPod returns the ports at which a client proxy listens for its server proxy.
func portsOfPod(pod *corev1.Pod) (control, data int32) {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			switch port.Name {
			case "control":
				control = port.ContainerPort
			case "data":
				data = port.ContainerPort
			}
		}
	}
	return control, data
}

// namespace is that of the pair's network.
func (o Observed) namespace() string {
	switch {
	case o.Client != nil:
		return o.Client.Namespace
	case o.Network != nil:
		return o.Network.Status.NetworkName
	default:
		return ""
	}
}

// endpoint returns where the server proxy finds the client proxy, once that is known.
func (r *Reconciler) endpoint(o Observed) (e Endpoint, known bool) {
	if o.Client == nil {
		return e, false
	}
	publish := settingsOf(r.Config, o).Publish
	if publish == config.PublishPodIP {
		e.Address = o.Client.Status.PodIP
		e.Control, e.Data = portsOfPod(o.Client)
	} else {
		e.Address, e.Control, e.Data = "127.0.0.1", o.Published.Control, o.Published.Data
		if publish == config.PublishNodePort {
			e.Address = ""
			if addresses := nodeAddresses(o.Host); o.Host != nil && len(addresses) > 0 {
				for _, a := range o.Host.Status.Addresses {
					if a.Type == corev1.NodeInternalIP {
						e.Address = a.Address
						break
					}
				}
			}
		}
	}
	return e, e.Address != "" && e.Control != 0 && e.Data != 0
}

// chooseHostPorts returns two ports of the node that no other pair has.
func (r *Reconciler) chooseHostPorts(ctx context.Context, o Observed) (chosen HostPorts, err error) {
	if o.Published != (HostPorts{}) {
		return o.Published, nil
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.MatchingLabels{tunnelv1.LabelRole: tunnelv1.RoleClient}); err != nil {
		return chosen, err
	}
	taken := map[int32]bool{}
	for i := range pods.Items {
		ports := hostPortsOf(&pods.Items[i])
		taken[ports.Control], taken[ports.Data] = true, true
	}
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	mine := r.memory.all[o.Proxy.UID]
	if mine != nil && mine.hostPorts != (HostPorts{}) {
		return mine.hostPorts, nil
	}
	for _, other := range r.memory.all {
		taken[other.hostPorts.Control], taken[other.hostPorts.Data] = true, true
	}
	first, pairs := r.Config.HostPorts.First, (r.Config.HostPorts.Last-r.Config.HostPorts.First+1)/2
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(o.Proxy.UID)) // it never fails
	start := int32(sum.Sum32() % uint32(pairs))
	for i := range pairs {
		control := first + 2*((start+i)%pairs)
		if !taken[control] && !taken[control+1] {
			chosen = HostPorts{control, control + 1}
			if mine != nil {
				mine.hostPorts = chosen
			}
			return chosen, nil
		}
	}
	return chosen, fmt.Errorf("all ports of TUNNEL_HOST_PORTS (%d-%d) are taken: have an administrator set more", first, r.Config.HostPorts.Last)
}

// wakeAt has the pair looked at again at a time, if nothing comes before.
func (out *Outcome) wakeAt(at, now time.Time) {
	if wait := max(at.Sub(now), time.Millisecond); out.Again == 0 || wait < out.Again {
		out.Again = wait
	}
}
