package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/clockskew"
)

// The times of the lease. Without a leader no instance starts and none expires. So
// another replica replaces a killed leader within LeaseDuration, which the Lease object
// states for all readers. The other replicas count HoldDuration from the last renewal
// that they have seen, and check every RetryPeriod, which the election extends by a
// jitter of up to 1.2: one check to see the last renewal, one to see that there was no
// other. A leader that stops regularly is replaced within 2.2 s.
//
// RenewDeadline is as long as that allows: a busy API server must not cost the lease
// when there is most to do. A leader that cannot renew for longer exits. It could not
// write during that time anyway.
const (
	LeaseDuration = 15 * time.Second
	HoldDuration  = LeaseDuration - 2*22*RetryPeriod/10 - 100*time.Millisecond
	RenewDeadline = 9 * time.Second
	RetryPeriod   = time.Second
)

// errNotLeading rejects a write of a replica whose lease has expired.
var errNotLeading = errors.New("not sent: the lease has expired, and another replica may lead")

// lease is the lock of the leader election. It knows until when no other replica can
// lead. The election itself notices the loss of a lease late: a leader that was paused
// assumes for RenewDeadline that it still leads. The mutex guards one value and is never held during a request: every write of
// the process asks valid.
type lease struct {
	resourcelock.Interface
	// deposed is called once another replica is seen to lead.
	deposed func()
	// candidate is closed when this replica first reads the Lease.
	candidate chan struct{}
	joined    sync.Once

	clocks  clockskew.Clocks
	mu      sync.Mutex
	renewed clockskew.Moment
}

// newLease returns the lock, which is a Lease in the API server.
func newLease(restConfig *rest.Config, namespace, name string, deposed func()) (*lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get the host name for the identity of this replica: %w", err)
	}
	restConfig = rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election")
	restConfig.Timeout = RenewDeadline / 2 // one request without an answer must not cost the lease
	leases, err := coordinationv1.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	// The identity is unique for each process, not for each host: a restarted container must not take the lease of
	// its predecessor for its own.
	return &lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
		},
		deposed:   deposed,
		candidate: make(chan struct{}),
		clocks:    clockskew.New(clock.RealClock{}),
	}, nil
}

// Get reads the holder of the lease. Get and the writes are not cancelled when the
// operator stops: their client has a timeout, and the lease is released afterwards.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.joined.Do(func() { close(l.candidate) })
	record, raw, err := l.Interface.Get(context.WithoutCancel(ctx))
	// A standby reads the same, and has nothing to end. Only a replica that has led is deposed.
	if err == nil && record.HolderIdentity != l.Identity() && l.end() {
		l.deposed()
	}
	return record, raw, err
}

// Create acquires a lease that does not exist.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func(record resourcelock.LeaderElectionRecord) error {
		return l.Interface.Create(context.WithoutCancel(ctx), record)
	})
}

// Update acquires, renews or releases the lease.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func(record resourcelock.LeaderElectionRecord) error {
		return l.Interface.Update(context.WithoutCancel(ctx), record)
	})
}

// write records when a successful write began: other replicas count from when they see
// it, which is later.
func (l *lease) write(record resourcelock.LeaderElectionRecord, send func(resourcelock.LeaderElectionRecord) error) error {
	record.LeaseDurationSeconds = int(LeaseDuration / time.Second)
	if record.HolderIdentity == "" {
		l.end() // before the request, not after its answer
	}
	// The earlier of all possible times counts as the renewal, so that this replica always gives up the lease before
	// another one takes it.
	began := l.clocks.Now()
	// The API server may have stored a renewal whose answer was lost. That only shortens what this replica assumes.
	if err := send(record); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.mu.Lock()
		l.renewed = began
		l.mu.Unlock()
	}
	return nil
}

// end forgets the lease and reports whether there was one.
func (l *lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := !l.renewed.IsZero()
	l.renewed = clockskew.Moment{}
	return held
}

// valid reports whether no other replica can lead yet. The longer of both times counts:
// other replicas keep counting while this machine is suspended, and they do not notice
// when the clock of this one is set back.
func (l *lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.clocks.Since(l.renewed) < HoldDuration
}

// fencedClient makes clients that write only while the lease is valid. It is the client of all families. The clients of events,
// of the lease and of the upgrade gate have the transport without the fence.
func (l *lease) fencedClient(restConfig *rest.Config, options client.Options) (client.Client, error) {
	fenced := *options.HTTPClient
	fenced.Transport = fence{lease: l, next: options.HTTPClient.Transport}
	options.HTTPClient = &fenced
	return client.New(restConfig, options)
}

// fence refuses writes without a valid lease: a leader that was paused must not overwrite the writes of its successor.
type fence struct {
	lease *lease
	next  http.RoundTripper
}

// RoundTrip lets reads pass without the lease, because caches are filled before a process is leader.
func (f fence) RoundTrip(r *http.Request) (*http.Response, error) {
	// The check is before the request and not after it. A request that was sent in time may arrive later, by as much as the API
	// server and the network delay it: preconditions of each write cover that.
	if r.Method != http.MethodGet && !f.lease.valid() {
		if r.Body != nil {
			_ = r.Body.Close() // RoundTripper requires it
		}
		return nil, errNotLeading
	}
	return f.next.RoundTrip(r)
}
