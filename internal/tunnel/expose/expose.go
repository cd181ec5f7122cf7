package expose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
)

// Options are the options of Run.
type Options struct {
	// Config is how the API server is reached.
	Config *rest.Config
	// Namespace and Name of the pod, the Secret and the Service. Pods reach the servers by that name.
	Namespace, Name string
	// Image has the program at /berg-tunnel, as the operator's image has.
	Image string
	// Ports are the ports of this machine that pods reach.
	Ports []Port
	// Replace takes over the name from another process that uses it at the start. Another one that takes it over later ends Run.
	Replace bool
	// Out is for the person at the terminal, Log for the details of both proxies.
	Out io.Writer
	Log *slog.Logger
	// Version is written into the log.
	Version string
}

// Port is a server of this machine, and the port at which pods reach it.
type Port struct{ Local, InCluster int32 }

const (
	// validity is for one run of this program: the certificates are made again with each.
	validity = 30 * 24 * time.Hour
	// cleanUpTimeout is how long the removal of the objects may take.
	cleanUpTimeout = 15 * time.Second
	// createTimeout is how long the API server may take to make the pod.
	createTimeout = 15 * time.Second
	// repairInterval is how often to look for the Secret and the Service. A watch would need more rights.
	repairInterval = 3 * time.Second
	// drain is how long open connections may continue.
	drain = time.Second
)

// reconnect is how long to wait before the connection to the pod is made again.
var reconnect = backoff.Exponential{First: 250 * time.Millisecond, Max: 5 * time.Second}

// session is one run.
type session struct {
	Options
	cluster       cluster
	authority     *pki.Authority
	clientPair    pki.Pair
	control, data int

	// pod is the last pod that this process has created.
	pod *corev1.Pod
}

// Run makes the servers reachable until the context ends, and then deletes the objects that it has created.
func Run(ctx context.Context, o Options) (err error) {
	s := &session{Options: o}
	if s.cluster, err = newCluster(o.Config, o.Namespace); err != nil {
		return err
	}
	now := time.Now()
	if s.authority, err = pki.NewAuthority("berg-tunnel expose", now, validity); err != nil {
		return err
	}
	if s.clientPair, err = s.authority.Issue(pki.ClientProxy, now, validity); err != nil {
		return err
	}
	if s.control, s.data, err = freePorts(); err != nil {
		return err
	}
	s.checkServers(ctx)
	defer s.cleanUp(ctx)
	// The pod is connected until the server proxy has ended.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	forwarded, lost := make(chan struct{}), make(chan error, 1)
	go func() { lost <- s.keepConnected(connected, ctx, sync.OnceFunc(func() { close(forwarded) })) }()
	select {
	case <-ctx.Done():
		disconnect()
		<-lost
		return nil
	case err := <-lost:
		return err
	case <-forwarded:
	}
	ended := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ended <- s.serve(serving) }()
	select {
	case err = <-ended:
	case err = <-lost:
		stop()
		return errors.Join(err, <-ended)
	}
	disconnect()
	<-lost
	return err
}

func (s *session) say(format string, args ...any) { _, _ = fmt.Fprintf(s.Out, format+"\n", args...) }

func (s *session) identity(role pki.Role) (*pki.Identity, error) {
	pair, err := s.authority.Issue(role, time.Now(), validity)
	if err != nil {
		return nil, err
	}
	return pki.NewIdentity(s.authority.Certificate, pair)
}

// serve runs the server proxy, and prepares a tunnel for each port.
func (s *session) serve(ctx context.Context) error {
	server, err := s.identity(pki.ServerProxy)
	if err != nil {
		return err
	}
	controller, err := s.identity(pki.Controller)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var prepared error
	var following sync.WaitGroup
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	err = proxy.RunServer(ctx, proxy.ServerOptions{
		Common: proxy.Common{
			Identity: server, MaxStreams: proxy.DefaultMaxStreams, PeerGrace: proxy.DefaultPeerGrace, Reconnect: true, Drain: drain,
			Version: s.Version, Log: s.Log, Now: time.Now,
			Ready: func(ready proxy.Ready) {
				following.Go(func() {
					calls, err := control.Dial(proxy.Endpoint{Address: "127.0.0.1", Port: ready.ServerControlPort}.String(), controller, pki.ServerProxy)
					if err == nil {
						defer func() { _ = calls.Close() }()
						err = s.prepare(ctx, calls)
					}
					if err != nil {
						prepared = err
						stop()
						return
					}
					s.followServers(ctx, calls)
				})
			},
		},
		Control:       proxy.Endpoint{Address: "127.0.0.1"},
		ClientControl: proxy.Endpoint{Address: "127.0.0.1", Port: s.control},
		ClientData:    proxy.Endpoint{Address: "127.0.0.1", Port: s.data},
		// The person at this machine has named the ports.
		Servers: allowlist.Rules{Allowed: loopback}, Names: net.DefaultResolver,
		ConnectTimeout: proxy.DefaultConnectTimeout, DialTimeout: proxy.DefaultDialTimeout, CheckInterval: proxy.DefaultCheckInterval,
	})
	stop()
	following.Wait()
	if prepared != nil && !errors.Is(prepared, context.Canceled) {
		return prepared
	}
	return err
}

// prepare makes a tunnel for each port, and says where pods reach it.
func (s *session) prepare(ctx context.Context, calls *control.Client) error {
	for _, p := range s.Ports {
		request := &control.TunnelRequest{
			Name: "port-" + strconv.Itoa(int(p.Local)), ServerAddress: "localhost", ServerPort: p.Local, ClientProxyPort: p.InCluster,
		}
		spec, err := calls.PrepareTunnel(ctx, request)
		// The connection to the pod may break between both.
		for attempt := 1; status.Code(err) == codes.Unavailable && sleep(ctx, reconnect.After(attempt)); attempt++ {
			spec, err = calls.PrepareTunnel(ctx, request)
		}
		if err != nil {
			return fmt.Errorf("prepare the tunnel to port %d: %w", p.Local, err)
		}
		s.say("Pods reach port %d of this machine at %s", p.Local, s.address(spec.GetClientProxyPort()))
	}
	s.say("Press Ctrl-C to end it and to remove the pod.")
	return nil
}

// keepConnected keeps the ports of the pod forwarded until ctx ends. It makes the pod if there is none. Before it is connected for the
// first time, an error that only a person can resolve ends it, and so does the end of starting.
func (s *session) keepConnected(ctx, starting context.Context, ready func()) error {
	was := false
	for attempt := 1; ; attempt++ {
		err := s.connect(ctx, starting, func() {
			if was {
				s.say("Connected again.")
			}
			was, attempt = true, 0
			ready()
		})
		var inUse *inUseError
		switch {
		case ctx.Err() != nil, !was && starting.Err() != nil:
			return nil //nolint:nilerr // it was asked to end
		case !was && isFinal(err), errors.As(err, &inUse):
			return s.cluster.explain(err)
		case was && attempt == 0:
			s.say("The connection to the pod is lost. Connecting again.")
		case attempt == 1:
			s.say("The cluster cannot be used yet, trying again: %v", err)
		}
		s.Log.Debug("not connected to the pod", "error", err)
		if !sleep(ctx, reconnect.After(max(attempt, 1))) {
			return nil
		}
	}
}

// sleep waits, and reports whether the time is over. It is not if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// connect creates missing objects, waits for the pod, and forwards its ports until the connection breaks. The pod is created
// before the Secret that it mounts, because the Secret names the pod as its owner. The kubelet waits for the Secret.
func (s *session) connect(ctx, starting context.Context, ready func()) error {
	// The pod would start with the Secret of another program.
	for _, o := range []object{&corev1.Secret{}, &corev1.Service{}} {
		o.SetName(s.Name)
		if live, err := s.cluster.find(ctx, o); err != nil {
			return err
		} else if live != nil && !ours(live) {
			return s.notOurs(live)
		}
	}
	pod, err := s.ensurePod(ctx)
	if err != nil {
		return err
	}
	if err := s.ensureOwned(ctx, pod); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	var repairing sync.WaitGroup
	repairing.Go(func() { end(s.repair(ctx, pod)) })
	err = s.forward(ctx, starting, pod, ready)
	end(nil)
	repairing.Wait()
	var inUse *inUseError
	if errors.As(context.Cause(ctx), &inUse) {
		return inUse
	}
	return err
}

// repair makes the Secret and the Service again when they are deleted, until the context ends or another object has the name.
func (s *session) repair(ctx context.Context, pod *corev1.Pod) error {
	for sleep(ctx, repairInterval) {
		err := s.ensureOwned(ctx, pod)
		var inUse *inUseError
		if errors.As(err, &inUse) {
			return err
		}
		if err != nil {
			s.Log.Debug("Secret and Service could not be compared", "error", err)
		}
	}
	return nil
}

// forward waits for the pod, and forwards its ports until the connection breaks.
func (s *session) forward(ctx, starting context.Context, pod *corev1.Pod, ready func()) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(starting, stop)()
	last := ""
	err := s.cluster.await(waiting, s.Name, func(live *corev1.Pod) (bool, error) {
		if live == nil || live.UID != pod.UID || finished(live) {
			return false, fmt.Errorf("pod %s has ended", s.Name)
		}
		if reason := cmp.Or(podstate.Starting(live), podstate.Scheduling(live)); reason != "" && reason != last {
			last = reason
			s.say("The pod waits: %s", reason)
		}
		return podstate.Ready(live), nil
	})
	if err != nil {
		return err
	}
	return s.cluster.forward(ctx, s.Config, s.Name, s.control, s.data, ready)
}

// inUseError says that another object has the name.
type inUseError struct{ message string }

func (e *inUseError) Error() string { return e.message }

// ours reports whether berg-tunnel made an object.
func ours(o object) bool { return o.GetLabels()[labelManagedBy] == managedBy }

func (s *session) notOurs(o object) error {
	kind := strings.TrimSuffix(resourceName(o), "s")
	return &inUseError{fmt.Sprintf("namespace %s has a %s %s that berg-tunnel did not make: choose another name with --as", s.Namespace, kind, s.Name)}
}

// ensurePod returns the pod of this process. One that has ended is replaced.
func (s *session) ensurePod(ctx context.Context) (*corev1.Pod, error) {
	found, err := s.cluster.find(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	if err != nil {
		return nil, err
	}
	if found != nil {
		live := found.(*corev1.Pod)
		own := s.pod != nil && s.pod.UID == live.UID
		switch {
		case own && !finished(live) && live.DeletionTimestamp == nil:
			return live, nil
		case !ours(live):
			return nil, s.notOurs(live)
		case !own && !finished(live) && live.DeletionTimestamp == nil && !s.Replace:
			return nil, &inUseError{fmt.Sprintf("another berg-tunnel exposes a machine as %s in namespace %s: end it, choose another name with --as, or take the name over with --replace", s.Name, s.Namespace)}
		}
		if err := s.cluster.remove(ctx, live); err != nil {
			return nil, err
		}
		// The name is free only when the former pod is gone from the API.
		if err := s.cluster.await(ctx, s.Name, func(p *corev1.Pod) (bool, error) { return p == nil || p.UID != live.UID, nil }); err != nil {
			return nil, err
		}
	}
	pod := clientPod(s.Options)
	// A request that is broken off may have made a pod that nothing would remove.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer cancel()
	if err := s.cluster.create(making, pod); err != nil {
		return nil, err
	}
	// From now on the name belongs to this process. If another one takes it over, both would replace each other's pod again and again.
	s.pod, s.Replace = pod, false
	return pod, nil
}

// ensureOwned makes the Secret and the Service that go with the pod. Those of an earlier pod are replaced.
func (s *session) ensureOwned(ctx context.Context, pod *corev1.Pod) error {
	for _, desired := range []object{clientSecret(s.Options, pod, s.authority.Certificate, s.clientPair), service(s.Options, pod)} {
		live, err := s.cluster.find(ctx, desired)
		if err != nil {
			return err
		}
		if live != nil {
			switch {
			case !ours(live):
				return s.notOurs(live)
			case ownedBy(live, pod):
				continue
			}
			if err := s.cluster.remove(ctx, live); err != nil {
				return err
			}
		}
		if err := s.cluster.create(ctx, desired); err != nil {
			return err
		}
	}
	return nil
}

func ownedBy(o object, pod *corev1.Pod) bool {
	owners := o.GetOwnerReferences()
	return len(owners) == 1 && owners[0].UID == pod.UID
}

// cleanUp removes the pod of this process, and with it the objects that the pod owns. It runs with a context of its own, since
// the context of Run has ended. The Service goes first, so that no pod connects to a proxy that ends.
func (s *session) cleanUp(ctx context.Context) {
	pod := s.pod
	if pod == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	for _, o := range []object{&corev1.Service{}, &corev1.Secret{}} {
		o.SetName(s.Name)
		if live, err := s.cluster.find(ctx, o); err == nil && live != nil && ownedBy(live, pod) {
			_ = s.cluster.remove(ctx, live) // otherwise it goes with the pod
		}
	}
	if err := s.cluster.remove(ctx, pod); err != nil {
		s.say("The pod could not be removed: %v. Remove it with: kubectl delete pod -n %s %s", err, s.Namespace, s.Name)
		return
	}
	s.say("Removed pod %s.", s.Name)
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
