package instances

import (
	"context"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/flags"
)

// sourcePattern matches a valid source, which must also be a valid value of a label.
var sourcePattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// CheckSource validates the id of a user or team.
func CheckSource(source string) error {
	if !sourcePattern.MatchString(source) {
		return Fail(Invalid, "source: must have 1 to 63 letters, digits, dashes, underscores or dots, with a letter or digit at both ends")
	}
	return nil
}

// mayWrite validates a source that starts, renews or stops an instance. It comes before each question to the API server.
func (s *Store) mayWrite(source string) error {
	if err := CheckSource(source); err != nil {
		return err
	}
	if s.options.Allow != nil && !s.options.Allow(source) {
		return Fail(Exhausted, "source %s sends too many requests: try again in a few seconds", source)
	}
	return nil
}

// attempts bounds how often a start tries again because another replica was faster. Two replicas that repeatedly start
// and end the same pair could otherwise keep a request busy until its deadline.
const attempts = 10

// Start has the options of one start.
type Start struct {
	// Flag of the instance. "": the API makes it from the Challenge.
	Flag string
	// Timeout of the instance. 0: the timeout of the registration.
	Timeout time.Duration
}

// Boot starts the instance of a source, or joins the start of a running one. started: this call has created it.
//
// Replicas hold no common lock. The name of an instance follows from its registration, source and predecessor, so two
// replicas with the same state create the same name and one gets AlreadyExists. With different states they may create
// two names; the later creation then finds the earlier one with hasOlder, and deletes its own.
func (s *Store) Boot(ctx context.Context, r Registration, source string, want Start) (i Instance, started bool, err error) {
	if err := s.mayWrite(source); err != nil {
		return Instance{}, false, err
	}
	if r.expired(s.options.Clock.Now()) {
		return Instance{}, false, r.errOver()
	}
	challenge, err := s.challenge(ctx, r.Namespace, r.Challenge())
	if err != nil {
		return Instance{}, false, err
	}
	all, err := s.cached(ctx, r, source)
	if err != nil {
		return Instance{}, false, err
	}
	// An empty cache needs no question: create finds out whether the name is taken.
	if len(all) > 0 { // the cache lags, so the instance may be deleted already
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
			return newInstance(current, r, challenge), false, nil
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
			return Instance{}, false, err
		}
		older, err := s.hasOlder(ctx, r, source, created)
		if err != nil {
			return Instance{}, false, err
		}
		if !older {
			return newInstance(created, r, challenge), true, nil
		}
		if err := s.takeBack(ctx, []*bergv1.ChallengeInstance{created}); err != nil {
			return Instance{}, false, err
		}
		if all, err = s.confirmed(ctx, r, source, ""); err != nil {
			return Instance{}, false, err
		}
	}
	return Instance{}, false, failPlayers(Refused, "The instance is started and stopped at the same time: try again.", "the instance is started and stopped by others at the same time: try again")
}

// hasOlder reports whether the source has another live instance, created before this one. It lists the exact state that
// this creation made: the state contains every earlier creation and no later one, so two replicas never both delete
// theirs. If the API server has compacted this state, the current one must do.
func (s *Store) hasOlder(ctx context.Context, r Registration, source string, created *bergv1.ChallengeInstance) (bool, error) {
	before, err := s.confirmed(ctx, r, source, created.ResourceVersion)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		before, err = s.confirmed(ctx, r, source, "")
	}
	if err != nil {
		return false, err
	}
	for n := range before {
		if before[n].UID != created.UID && !view.IsEnding(&before[n]) {
			return true, nil
		}
	}
	return false, nil
}

// create creates the instance that follows predecessor. It never updates: AlreadyExists means that another request was
// faster, or that a foreign object has the name. The flag is drawn here, for this attempt alone. An instance that another request
// has created keeps its own.
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
		timeout = secondsText(want.Timeout)
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
			OwnerID:      owner, Flag: flag, Timeout: timeout, Until: r.latestEnd(),
		},
	}
	return i, explain(s.live.Create(ctx, i), flag)
}

// nameTaken returns an error if an instance of another pair has the name.
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

// takeBack deletes instances that were created although an older one lives. The UID as a precondition protects a new
// instance of the same name. A failure leaves an instance too many. The next start or stop of the pair finds it as superseded,
// and deletes it.
func (s *Store) takeBack(ctx context.Context, all []*bergv1.ChallengeInstance) error {
	for _, i := range all {
		err := s.live.Delete(ctx, i, client.Preconditions{UID: &i.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
