package instances

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/api/flags"
)

// sourcePattern is what a source may be: a value of a label.
var sourcePattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// CheckSource validates the id of a user or team.
func CheckSource(source string) error {
	if !sourcePattern.MatchString(source) {
		return Fail(Invalid, "source: must have 1 to 63 letters, digits, dashes, underscores or dots, with a letter or digit at both ends")
	}
	return nil
}

// mayWrite validates a source that starts, renews or stops an instance.
func (s *Store) mayWrite(source string) error {
	if err := CheckSource(source); err != nil {
		return err
	}
	if s.options.Allow != nil && !s.options.Allow(source) {
		return Fail(Exhausted, "source %s sends too many requests: try again in a few seconds", source)
	}
	return nil
}

// attempts bounds how often a start begins again because another replica was quicker. Two replicas that start and end
// the same pair again and again could otherwise keep a request busy until its deadline.
const attempts = 10

// Start is what a platform wants to start.
type Start struct {
	// Flag of the instance. "": the API makes it from the Challenge.
	Flag string
	// Timeout of the instance. 0: that of the registration.
	Timeout time.Duration
}

// Boot starts the instance of a source, or joins the start of one that is there. started: this call has created it.
func (s *Store) Boot(ctx context.Context, r Registration, source string, want Start) (i Instance, started bool, err error) {
	if err := s.mayWrite(source); err != nil {
		return Instance{}, false, err
	}
	if r.expired(s.options.Clock.Now()) {
		return Instance{}, false, Fail(Refused, "challenge %s ended at %s: change its until", r.ID, r.Until.UTC().Format(time.RFC3339))
	}
	challenge, err := s.challenge(ctx, r.Namespace, r.Challenge())
	if err != nil {
		return Instance{}, false, err
	}
	all, err := s.cached(ctx, r, source)
	if err != nil {
		return Instance{}, false, err
	}
	if len(all) > 0 { // what the cache has may be over
		if all, err = s.confirmed(ctx, r, source, ""); err != nil {
			return Instance{}, false, err
		}
	}
	for range attempts {
		current, superseded, ending := live(all)
		if err := s.takeBack(ctx, superseded); err != nil {
			return Instance{}, false, err
		}
		if current != nil {
			return view(current, r.ID, challenge), false, nil
		}
		var predecessor types.UID
		if len(ending) > 0 {
			predecessor = ending[len(ending)-1].UID
		}
		created, err := s.create(ctx, r, challenge, source, predecessor, want)
		switch {
		case apierrors.IsAlreadyExists(err):
			if all, err = s.confirmed(ctx, r, source, ""); err != nil {
				return Instance{}, false, err
			}
			if len(all) == 0 { // the name is taken, and not by this pair; or it went away right now
				if err := s.nameTaken(ctx, r, challenge, source, predecessor); err != nil {
					return Instance{}, false, err
				}
			}
			continue
		case err != nil:
			return Instance{}, false, explain(err)
		}
		older, err := s.hasOlder(ctx, r, source, created)
		if err != nil {
			return Instance{}, false, err
		}
		if !older {
			return view(created, r.ID, challenge), true, nil
		}
		if err := s.takeBack(ctx, []*bergv1.ChallengeInstance{created}); err != nil {
			return Instance{}, false, err
		}
		if all, err = s.confirmed(ctx, r, source, ""); err != nil {
			return Instance{}, false, err
		}
	}
	return Instance{}, false, Fail(Refused, "the instance is started and stopped by others at the same time: try again")
}

// hasOlder reports whether another instance of the source lives that was created before. The state of the API server that
// this creation made has all of these.
func (s *Store) hasOlder(ctx context.Context, r Registration, source string, created *bergv1.ChallengeInstance) (bool, error) {
	before, err := s.confirmed(ctx, r, source, created.ResourceVersion)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		before, err = s.confirmed(ctx, r, source, "")
	}
	if err != nil {
		return false, err
	}
	for n := range before {
		if before[n].UID != created.UID && !Ended(&before[n]) {
			return true, nil
		}
	}
	return false, nil
}

// create creates the instance that follows predecessor.
func (s *Store) create(ctx context.Context, r Registration, challenge *bergv1.Challenge, source string, predecessor types.UID, want Start) (*bergv1.ChallengeInstance, error) {
	owner := OwnerID(r.UID, source, predecessor)
	flag := want.Flag
	if flag == "" && flags.Needed(challenge) {
		var err error
		if flag, err = flags.Make(challenge); err != nil {
			return nil, err
		}
	}
	now := s.options.Clock.Now()
	timeout := r.timeout(now, now)
	if want.Timeout > 0 {
		timeout = strconv.FormatInt(int64(max(want.Timeout.Round(time.Second)/time.Second, 1)), 10) + "s"
	}
	i := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: Name(challenge.Name, owner),
			Labels: map[string]string{
				LabelRegistration: r.Name(), bergv1.LabelSource: source, bergv1.LabelManagedBy: bergv1.ManagedByAPI,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: r.Name(), UID: r.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge.Name, Namespace: challenge.Namespace},
			OwnerID:      owner, Flag: flag, Timeout: timeout,
		},
	}
	return i, s.live.Create(ctx, i)
}

// nameTaken returns an error if the name of an instance is used by one that is not of its pair.
func (s *Store) nameTaken(ctx context.Context, r Registration, challenge *bergv1.Challenge, source string, predecessor types.UID) error {
	name := Name(challenge.Name, OwnerID(r.UID, source, predecessor))
	found := &bergv1.ChallengeInstance{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && (registrationUID(found) != r.UID || found.Labels[bergv1.LabelSource] != source) {
		return Fail(Refused, "ChallengeInstance %s/%s exists and was not created by this API: delete it", r.Namespace, name)
	}
	return err
}

// takeBack deletes instances that were created although an older one lives.
func (s *Store) takeBack(ctx context.Context, all []*bergv1.ChallengeInstance) error {
	for _, i := range all {
		err := s.live.Delete(ctx, i, client.Preconditions{UID: &i.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// WaitRunning waits until an instance runs and its addresses accept connections, until it cannot, or for wait. It
// returns what is known of it then.
func (s *Store) WaitRunning(ctx context.Context, r Registration, i Instance, wait time.Duration) (Instance, error) {
	changed, stop := s.changes.Wait(pair(r.UID, i.Source))
	defer stop()
	deadline := s.options.Clock.NewTimer(wait)
	defer deadline.Stop()
	settled := s.options.Clock.NewTimer(Settle)
	defer settled.Stop()
	refusable := false // for as long as Settle no slot of the source was about to become free
	for {
		object := &bergv1.ChallengeInstance{}
		err := s.cache.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: i.Name}, object)
		switch {
		case apierrors.IsNotFound(err): // not in the cache yet, or gone
			if gone, confirmErr := s.gone(ctx, r, i); confirmErr != nil || gone {
				return i, errors.Join(confirmErr, Fail(NotFound, "the instance was stopped while it started: start it again"))
			}
		case err != nil:
			return i, err
		case object.UID != i.UID:
			return i, Fail(NotFound, "the instance was stopped while it started: start it again")
		default:
			challenge, err := s.challenge(ctx, r.Namespace, object.Spec.ChallengeRef.Name)
			if err != nil && !Is(err, Invalid) {
				return i, err
			}
			i = view(object, r.ID, challenge)
			switch {
			case i.State == Running:
				s.connect(ctx, i, deadline.C())
				return i, nil
			case i.State == Stopping:
				return i, Fail(NotFound, "the instance was stopped while it started: start it again")
			case i.State == Errored:
				return i, Fail(Refused, "the instance cannot start: %s", detail(object))
			case i.Limited:
				waits, err := s.slotComes(ctx, r.Namespace, i.Source)
				switch {
				case err != nil:
					return i, err
				case waits:
					refusable = false
					settled.Reset(Settle)
				case refusable:
					message := detail(object)
					return i, errors.Join(s.takeBack(ctx, []*bergv1.ChallengeInstance{object}), Fail(Exhausted, "%s. Stop another instance first", message))
				}
			}
		}
		select {
		case <-changed:
		case <-settled.C():
			refusable = true
		case <-deadline.C():
			return i, nil
		case <-ctx.Done():
			return i, ctx.Err()
		}
	}
}

// Settle is how long an instance may wait for a slot of its source that is free: until the operator has seen the end
// of the instance that had it. What waits longer, while no instance of the source ends, is refused.
const Settle = 2 * time.Second

// gone reports whether an instance that the cache does not have is not there.
func (s *Store) gone(ctx context.Context, r Registration, i Instance) (bool, error) {
	object := &bergv1.ChallengeInstance{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: i.Name}, object)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && object.UID != i.UID, err
}

// slotComes reports whether an instance of a source ends, so that one of the source that waits may start soon.
func (s *Store) slotComes(ctx context.Context, namespace, source string) (bool, error) {
	var list bergv1.ChallengeInstanceList
	if err := s.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{indexSource: source}); err != nil {
		return false, err
	}
	for n := range list.Items {
		if Ended(&list.Items[n]) {
			return true, nil
		}
	}
	return false, nil
}

// connect makes one connection to each TCP address of an instance that runs: a node or a Gateway may need a moment
// until it forwards. It gives up after ConnectWait, since the API may be where the addresses of players are not
// reachable.
func (s *Store) connect(ctx context.Context, i Instance, deadline <-chan time.Time) {
	if s.options.ConnectWait <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.ConnectWait)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, address := range tcpAddresses(i) {
			all.Go(func() { s.connectTo(ctx, address) })
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-deadline:
		cancel()
		<-done
	}
}

// Reachable reports whether the addresses of an instance that runs accept connections, for platforms that do not wait for
// the answer to a start. One that has run for longer than ConnectWait is not tried, for the reason of connect.
func (s *Store) Reachable(ctx context.Context, i Instance) bool {
	if i.State != Running || s.options.Clock.Since(i.Since) > s.options.ConnectWait {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, tryWait)
	defer cancel()
	var failed atomic.Bool
	var all sync.WaitGroup
	for _, address := range tcpAddresses(i) {
		all.Go(func() {
			if !s.accepts(ctx, address) {
				failed.Store(true)
			}
		})
	}
	all.Wait()
	return !failed.Load()
}

// tryWait is how long one attempt of Reachable may take. rCTF asks again after two seconds.
const tryWait = time.Second

// tcpAddresses are those of an instance that can be connected to.
func tcpAddresses(i Instance) (all []string) {
	for _, e := range i.Endpoints {
		if e.Protocol != "UDP" {
			all = append(all, net.JoinHostPort(e.Hostname, strconv.Itoa(int(e.Port))))
		}
	}
	return all
}

// accepts reports whether an address accepts a connection, as far as the API can tell: names of players may not be known
// where it runs.
func (s *Store) accepts(ctx context.Context, address string) bool {
	err := s.options.Dial(ctx, "tcp", address)
	var unknown *net.DNSError
	return err == nil || errors.As(err, &unknown) && unknown.IsNotFound
}

// connectTo tries an address until a connection is made, each time after twice the interval.
func (s *Store) connectTo(ctx context.Context, address string) {
	const first, most = 20 * time.Millisecond, 500 * time.Millisecond
	for interval := first; ctx.Err() == nil; interval = min(2*interval, most) {
		if s.accepts(ctx, address) {
			return
		}
		timer := s.options.Clock.NewTimer(interval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// dial makes a connection, and closes it.
func dial(ctx context.Context, network, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// Instance returns the one of a source, as the cache has it. It is confirmed if the cache has none.
func (s *Store) Instance(ctx context.Context, r Registration, source string) (Instance, error) {
	if err := CheckSource(source); err != nil {
		return Instance{}, err
	}
	all, err := s.cached(ctx, r, source)
	if err != nil {
		return Instance{}, err
	}
	current, _, _ := live(all)
	if current == nil {
		if all, err = s.confirmed(ctx, r, source, ""); err != nil {
			return Instance{}, err
		}
		if current, _, _ = live(all); current == nil {
			return Instance{}, Fail(NotFound, "source %s has no instance of challenge %s", source, r.ID)
		}
	}
	challenge, err := s.challenge(ctx, r.Namespace, current.Spec.ChallengeRef.Name)
	if err != nil && !Is(err, Invalid) { // an instance outlives its Challenge
		return Instance{}, err
	}
	return view(current, r.ID, challenge), nil
}

// Stopping reports whether an instance of a source is being deleted, as the cache has it.
func (s *Store) Stopping(ctx context.Context, r Registration, source string) (bool, error) {
	all, err := s.cached(ctx, r, source)
	if err != nil {
		return false, err
	}
	current, _, ending := live(all)
	return current == nil && len(ending) > 0, nil
}

// Renew lets an instance live for the timeout of its registration from now on; for wanted, if that is not 0.
func (s *Store) Renew(ctx context.Context, r Registration, source string, wanted time.Duration) (Instance, error) {
	now := s.options.Clock.Now()
	switch {
	case wanted == 0 && r.Timeout == 0:
		return Instance{}, Fail(Refused, "instances of challenge %s cannot be renewed: it has no timeout", r.ID)
	case r.expired(now):
		return Instance{}, Fail(Refused, "challenge %s ended at %s: change its until", r.ID, r.Until.UTC().Format(time.RFC3339))
	}
	if wanted > 0 {
		r.Timeout = wanted
	}
	if err := s.mayWrite(source); err != nil {
		return Instance{}, err
	}
	all, err := s.confirmed(ctx, r, source, "")
	if err != nil {
		return Instance{}, err
	}
	current, _, _ := live(all)
	if current == nil {
		return Instance{}, Fail(NotFound, "source %s has no instance of challenge %s", source, r.ID)
	}
	changed := current.DeepCopy()
	changed.Spec.Timeout = r.timeout(startOrNow(current, now), now)
	metaSet(&changed.Annotations, AnnotationRenewedAt, now.UTC().Format(time.RFC3339))
	if err := s.patch(ctx, current, changed); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return Instance{}, Fail(NotFound, "source %s has no instance of challenge %s", source, r.ID)
		}
		return Instance{}, explain(err)
	}
	return s.observed(ctx, r, changed)
}

// observed waits, for ReadWait, until the operator has reported the times of a changed instance.
func (s *Store) observed(ctx context.Context, r Registration, changed *bergv1.ChallengeInstance) (Instance, error) {
	err := s.until(ctx, waitKey(changed), func() (bool, error) {
		object := &bergv1.ChallengeInstance{}
		err := s.cache.Get(ctx, client.ObjectKeyFromObject(changed), object)
		if err != nil || object.UID != changed.UID || object.Status.ObservedGeneration < changed.Generation {
			return false, client.IgnoreNotFound(err)
		}
		changed = object
		return true, nil
	})
	if err != nil {
		return Instance{}, err
	}
	challenge, err := s.challenge(ctx, r.Namespace, changed.Spec.ChallengeRef.Name)
	if err != nil && !Is(err, Invalid) {
		return Instance{}, err
	}
	return view(changed, r.ID, challenge), nil
}

// End ends the instance of a source: it asks the operator to delete it, as a request of the player.
func (s *Store) End(ctx context.Context, r Registration, source string) error {
	if err := s.mayWrite(source); err != nil {
		return err
	}
	all, err := s.confirmed(ctx, r, source, "")
	if err != nil {
		return err
	}
	current, superseded, _ := live(all)
	if current == nil {
		return Fail(NotFound, "source %s has no instance of challenge %s", source, r.ID)
	}
	if err := s.takeBack(ctx, superseded); err != nil {
		return err
	}
	changed := current.DeepCopy()
	changed.Spec.TerminationReason = bergv1.TerminationUserRequest
	if err := s.patch(ctx, current, changed); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone
	} else if err != nil {
		return err
	}
	return s.seen(ctx, changed, true)
}

// patch writes what differs between two versions of an instance, and only to that instance. changed becomes what the
// API server has.
func (s *Store) patch(ctx context.Context, from, changed *bergv1.ChallengeInstance) error {
	before := from.DeepCopy()
	before.UID = "" // so that the patch contains the UID: another instance of the same name refuses it
	return s.live.Patch(ctx, changed, client.MergeFrom(before))
}

// Sources returns the instances of a source, or with source "" of all, by registration.
func (s *Store) Sources(ctx context.Context, namespace, endpoint, source string) ([]Instance, error) {
	registrations, err := s.Registrations(ctx, namespace, endpoint)
	if err != nil {
		return nil, err
	}
	byUID := make(map[types.UID]Registration, len(registrations))
	for _, r := range registrations {
		byUID[r.UID] = r
	}
	options := []client.ListOption{client.InNamespace(namespace)}
	if source != "" {
		options = append(options, client.MatchingFields{indexSource: source})
	}
	var list bergv1.ChallengeInstanceList
	if err := s.cache.List(ctx, &list, options...); err != nil {
		return nil, err
	}
	return s.views(ctx, list.Items, byUID)
}

// ByRegistration returns the live instances of a registration.
func (s *Store) ByRegistration(ctx context.Context, r Registration) ([]Instance, error) {
	var list bergv1.ChallengeInstanceList
	err := s.cache.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{indexRegistration: string(r.UID)})
	if err != nil {
		return nil, err
	}
	return s.views(ctx, list.Items, map[types.UID]Registration{r.UID: r})
}

func (s *Store) views(ctx context.Context, items []bergv1.ChallengeInstance, registrations map[types.UID]Registration) ([]Instance, error) {
	all := make([]Instance, 0, len(items))
	for n := range items {
		i := &items[n]
		r, ours := registrations[registrationUID(i)]
		if !ours || Ended(i) {
			continue
		}
		challenge, err := s.challenge(ctx, r.Namespace, i.Spec.ChallengeRef.Name)
		if err != nil && !Is(err, Invalid) {
			return nil, err
		}
		all = append(all, view(i, r.ID, challenge))
	}
	sortInstances(all)
	return all, nil
}

// Changes returns a channel that gets a value after a change of any instance of a namespace, and a function to call at the end.
func (s *Store) Changes(namespace string) (changed <-chan struct{}, stop func()) {
	return s.changes.Wait(namespaceWaitKey(namespace))
}

// RolloutValue is the value of the annotation that lets instances adopt their Challenge after a scenario has another
// tag.
func RolloutValue(scenario string) string {
	sum := sha256.Sum256([]byte(scenario))
	return "scenario-" + hex.EncodeToString(sum[:])[:nameDigits]
}

// exactly are options for the state at a resource version.
func exactly(version string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
}

// Is reports whether an error is one for the platform, of a kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}

// explain turns an error of the API server that a platform can do something about into one for it. The texts of
// others may name what is in a spec, and are for the log.
func explain(err error) error {
	switch {
	case apierrors.IsInvalid(err):
		var status apierrors.APIStatus
		if errors.As(err, &status) && status.Status().Details != nil {
			for _, cause := range status.Status().Details.Causes {
				return Fail(Invalid, "the instance is refused: %s", cause.Message)
			}
		}
		return Fail(Invalid, "the instance is refused by the API server")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server refuses: %w", err)
	default:
		return err
	}
}
