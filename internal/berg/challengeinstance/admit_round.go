package challengeinstance

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// round has the observations of one decision.
type round struct {
	all   []admission.Instance
	rules admission.Rules
	// candidates are the pending instances, and problems why some of them cannot be built.
	candidates map[types.UID]status.Candidate
	problems   map[types.UID]*outcome.Problem
	// delayed are the instances that are not written now, because their last write failed.
	delayed sets.Set[types.UID]
	// decisions are about all that wait.
	decisions []admission.Decision
}

// observeRound reads the Challenges, nodes, namespaces and started instances that decide about pending instances.
// listStarted lists the started ones.
func (a *admitter) observeRound(ctx context.Context, pending []bergv1.ChallengeInstance, listStarted startedLister, now time.Time) (round, error) {
	cfg := a.Config.Challenge
	support, err := nodes.Observe(ctx, a.Client, cfg)
	if err != nil {
		return round{}, err
	}
	challenges := a.challenges(ctx)
	r := round{
		rules: admission.Rules{
			Limits: admission.Limits{
				All: cfg.MaxInstances, Namespace: cfg.NamespaceMaxInstances,
				SourceInstances: cfg.SourceMaxInstances, SourceBudget: cfg.SourceBudget,
			},
			Challenge: challenges.limits,
		},
		candidates: make(map[types.UID]status.Candidate, len(pending)),
		problems:   map[types.UID]*outcome.Problem{},
		delayed:    sets.New[types.UID](),
	}
	limited := r.rules.Limits != admission.Limits{}
	checked := map[request]*outcome.Problem{}
	for n := range pending {
		i := &pending[n]
		c := status.Candidate{Instance: i, Key: a.challengeKey(i), Nodes: support, Prepared: a.isPrepared(i)}
		c.Challenge = challenges.get(c.Key)
		limited = limited || challenges.limits(c.Key).MaxInstances > 0
		r.candidates[i.UID] = c
		if p := a.checked(c, checked); p != nil {
			r.problems[i.UID] = p
		}
	}
	// A Challenge that could not be read would look deleted, and its instances would be reported as such.
	if challenges.err != nil {
		return r, challenges.err
	}
	a.applyDelays(ctx, &r, now)
	if r.all, err = listStarted(ctx, pending, limited); err != nil {
		return r, err
	}
	// An instance may have been started between the two lists: then both have it, and the started one counts.
	known := sets.New[types.UID]()
	for _, i := range r.all {
		known.Insert(i.UID)
	}
	for n := range pending {
		if !known.Has(pending[n].UID) {
			r.all = append(r.all, a.admissionInstance(&pending[n]))
		}
	}
	if err := a.observeHolders(ctx, &r); err != nil {
		return r, err
	}
	for n := range r.all {
		_, r.all[n].Blocked = r.problems[r.all[n].UID]
	}
	return r, challenges.err
}

// applyDelays excludes the instances that could not be written, and ends the delays that are over.
func (a *admitter) applyDelays(ctx context.Context, r *round, now time.Time) {
	for uid, p := range a.delays {
		_, isPending := r.candidates[uid]
		switch {
		case !isPending:
			delete(a.delays, uid)
			_, _ = a.backoff.Result(ctx, p.request, 0, nil) // forgets it
		case now.Before(p.until):
			r.delayed.Insert(uid)
			if p.refused {
				r.problems[uid] = p.problem
			}
		default:
			delete(a.delays, uid)
		}
	}
}

// request identifies equal checks: the Challenge and the fields of an instance on which the check of the Challenge depends.
// Nearly all of hundreds of pending instances make the same request.
type request struct {
	challenge       types.NamespacedName
	namespace       string
	hasFlag, hasNUL bool
	prepared        bool
}

// checked returns why a candidate cannot be built. Each request is checked once.
func (a *admitter) checked(c status.Candidate, known map[request]*outcome.Problem) *outcome.Problem {
	flag := c.Instance.Spec.Flag
	key := request{c.Key, c.Instance.Namespace, flag != "", strings.ContainsRune(flag, 0), c.Prepared}
	p, ok := known[key]
	if !ok {
		p = status.CheckAlone(c, a.Config.Challenge)
		known[key] = p
	}
	return p
}

// admissionInstance takes labels only for what they are: source and check are the platform's word, and prepared needs the
// namespace, too.
func (a *admitter) admissionInstance(i *bergv1.ChallengeInstance) admission.Instance {
	claim := ptr.Deref(i.Status.ClaimedBy, bergv1.InstanceReference{})
	prepared := a.isPrepared(i)
	return admission.Instance{
		Prepared: prepared, Claimable: prepared && status.Claimable(i), ClaimedBy: claim.UID,
		UID: i.UID, Key: client.ObjectKeyFromObject(i),
		Owner: i.Spec.OwnerID, Source: i.Labels[bergv1.LabelSource], Challenge: a.challengeKey(i),
		Created: i.CreationTimestamp.UTC(), Check: i.Labels[bergv1.LabelCheck] != "",
		Trusted: a.Config.Challenge.Trusts(i.Namespace),
		Started: isStarted(i), Ending: !isLive(i) || i.Spec.TerminationReason != "",
	}
}

// observeHolders finds out which pending instances cannot start because the namespace of their owner exists although no
// instance of the owner is started. Such a namespace belongs to none of them.
func (a *admitter) observeHolders(ctx context.Context, r *round) error {
	busy, owners := sets.New[string](), map[string][]int{}
	for n, i := range r.all {
		if i.Started {
			busy.Insert(i.Owner)
		} else {
			owners[i.Owner] = append(owners[i.Owner], n)
		}
	}
	for owner, same := range owners {
		if busy.Has(owner) {
			continue
		}
		ns, err := a.observeNamespace(ctx, manifests.NamespaceName(owner), client.DisableReadYourWritesConsistency)
		if err != nil {
			return err
		}
		if ns == nil {
			continue
		}
		for _, n := range same {
			uid := r.all[n].UID
			if _, known := r.problems[uid]; !known {
				r.problems[uid] = status.NamespaceIsOurs(r.candidates[uid], ns)
			}
		}
	}
	return nil
}

// challenges reads each Challenge once in a round.
func (a *admitter) challenges(ctx context.Context) *challenges {
	return &challenges{known: map[types.NamespacedName]*bergv1.Challenge{}, read: func(key types.NamespacedName, into *bergv1.Challenge) error {
		return a.Client.Get(ctx, key, into, client.DisableReadYourWritesConsistency)
	}}
}

type challenges struct {
	known map[types.NamespacedName]*bergv1.Challenge
	read  func(types.NamespacedName, *bergv1.Challenge) error
	err   error
}

// get returns nil if there is no such Challenge.
func (c *challenges) get(key types.NamespacedName) *bergv1.Challenge {
	challenge, known := c.known[key]
	if known {
		return challenge
	}
	challenge = &bergv1.Challenge{}
	if err := c.read(key, challenge); err != nil {
		challenge, c.err = nil, errors.Join(c.err, client.IgnoreNotFound(err))
	}
	c.known[key] = challenge
	return challenge
}

func (c *challenges) limits(key types.NamespacedName) admission.Challenge {
	challenge := c.get(key)
	if challenge == nil {
		return admission.Challenge{}
	}
	return admission.Challenge{MaxInstances: int(max(0, challenge.Spec.MaxInstances)), Cost: int(max(0, ptr.Deref(challenge.Spec.Cost, 1)))}
}
