package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// candidate is an instance named after its UID that was created some seconds after
// noon and can be built.
func candidate(uid string, second int, modify ...func(*Candidate)) Candidate {
	i := testInstance(func(i *bergv1.ChallengeInstance) {
		i.Name, i.UID = uid, types.UID(uid)
		i.CreationTimestamp = metav1.Time{Time: noon.Add(time.Duration(second) * time.Second)}
	})
	c := Candidate{Instance: i, Challenge: challengeOf(webOnly())}
	for _, m := range modify {
		m(&c)
	}
	return c
}

func wasStarted(c *Candidate) {
	started(c.Instance)
	pinned := webOnly()
	c.Pinned = &pinned
}

func withoutChallenge(c *Candidate) { c.Challenge = nil }

func beingDeleted(c *Candidate) { c.Instance.DeletionTimestamp = &metav1.Time{Time: noon} }

func namespaceOf(owner types.UID, modify ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifests.NamespaceName("a1b2c3d4-e5f6-7890-abcd-ef1234567890")}}
	ownership.Owner{Annotation: bergv1.AnnotationInstanceUID, UID: owner}.SetOn(n)
	for _, m := range modify {
		m(n)
	}
	return n
}

func terminating(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{Time: noon} }

// observed is what a reconciliation observes of an instance and of others of its owner.
func observed(me Candidate, ns *corev1.Namespace, siblings ...Candidate) Observed {
	instances, contends := owned(siblings)
	return Observed{Candidate: me, Namespace: ns, Holder: Holder(ns, instances), Ahead: Ahead(me.Instance, instances, contends)}
}

// owned returns the instances of an owner, and which of them would be built.
func owned(all []Candidate) (instances []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) {
	possible := map[types.UID]bool{}
	for _, c := range all {
		instances = append(instances, c.Instance)
		possible[c.Instance.UID] = MayContend(c.Instance) && CheckAlone(c, config.Challenge{AllowedCapabilities: nil}) == nil
	}
	return instances, func(i *bergv1.ChallengeInstance) bool { return possible[i.UID] }
}

func TestCheck(t *testing.T) {
	me := candidate("m", 5)
	empty := func(c *Candidate) { c.Challenge = challengeOf(manifests.Snapshot{}) }
	broken := func(c *Candidate) {
		c.Challenge = challengeOf(manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "-", Image: "i"}}})
	}
	flagged := func(c *Candidate) {
		c.Challenge = challengeOf(manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i", DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "F"}}}}})
	}
	withFlag := func(c *Candidate) { c.Instance.Spec.Flag = "flag{x}" }
	inFile := func(c *Candidate) {
		c.Challenge = challengeOf(manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i", DynamicFlag: &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/f"}}}}})
	}
	nulFlag := func(c *Candidate) { c.Instance.Spec.Flag = "flag{a\x00b}" }
	frozenOne := func(c *Candidate) {
		c.Challenge.Annotations = map[string]string{bergv1.AnnotationFrozen: "2025-06-01T12:00:00Z"}
	}
	askedToEnd := func(c *Candidate) { c.Instance.Spec.TerminationReason = bergv1.TerminationAdmin }
	beside := func(siblings ...Candidate) Observed { return observed(me, nil, siblings...) }
	holding := func(ns *corev1.Namespace, siblings ...Candidate) Observed { return observed(me, ns, siblings...) }

	for name, tc := range map[string]struct {
		o      Observed
		reason string
	}{
		"all is well":                       {Observed{Candidate: me}, ""},
		"no Challenge":                      {Observed{Candidate: candidate("m", 5, withoutChallenge)}, bergv1.ReasonChallengeMissing},
		"no Challenge, after the start":     {Observed{Candidate: candidate("m", 5, withoutChallenge, wasStarted)}, ""},
		"frozen":                            {Observed{Candidate: candidate("m", 5, frozenOne)}, bergv1.ReasonFrozen},
		"frozen, after the start":           {Observed{Candidate: candidate("m", 5, frozenOne, wasStarted)}, ""},
		"broken and frozen":                 {Observed{Candidate: candidate("m", 5, broken, frozenOne)}, bergv1.ReasonInvalidChallenge},
		"no containers":                     {Observed{Candidate: candidate("m", 5, empty)}, bergv1.ReasonNothingToRun},
		"no containers, after the start":    {Observed{Candidate: candidate("m", 5, empty, wasStarted)}, ""},
		"broken Challenge":                  {Observed{Candidate: candidate("m", 5, broken)}, bergv1.ReasonInvalidChallenge},
		"broken Challenge, after the start": {Observed{Candidate: candidate("m", 5, broken, wasStarted)}, ""},
		"flag with a NUL":                   {Observed{Candidate: candidate("n", 5, flagged, nulFlag)}, bergv1.ReasonInvalidFlag},
		"flag with a NUL, in a file":        {Observed{Candidate: candidate("n", 5, inFile, nulFlag)}, ""},
		"flag with a NUL, not wanted":       {Observed{Candidate: candidate("n", 5, nulFlag)}, ""},
		"flag missing":                      {Observed{Candidate: candidate("m", 5, flagged)}, bergv1.ReasonFlagMissing},
		"flag there":                        {Observed{Candidate: candidate("m", 5, flagged, withFlag)}, ""},
		"flag wanted only by an edit":       {Observed{Candidate: candidate("m", 5, flagged, wasStarted)}, ""},

		"namespace is ours":                      {holding(namespaceOf("m")), ""},
		"namespace is ours, deleted by hand":     {holding(namespaceOf("m", terminating)), bergv1.ReasonWaiting},
		"namespace without proof":                {holding(&corev1.Namespace{}), bergv1.ReasonNamespaceConflict},
		"namespace of an instance that is gone":  {holding(namespaceOf("gone")), bergv1.ReasonNamespaceConflict},
		"namespace of a sibling":                 {holding(namespaceOf("a"), candidate("a", 0)), bergv1.ReasonOwnerBusy},
		"namespace of a younger sibling":         {holding(namespaceOf("z"), candidate("z", 9)), bergv1.ReasonOwnerBusy},
		"namespace of a sibling, terminating":    {holding(namespaceOf("a", terminating), candidate("a", 0, beingDeleted)), bergv1.ReasonOwnerBusy},
		"namespace of a sibling that failed":     {holding(namespaceOf("a"), candidate("a", 0, withoutChallenge)), bergv1.ReasonOwnerBusy},
		"namespace of the second of two":         {holding(namespaceOf("b"), candidate("a", 0), candidate("b", 1)), bergv1.ReasonOwnerBusy},
		"namespace is ours, older sibling waits": {holding(namespaceOf("m"), candidate("a", 0)), ""},

		"older sibling":                           {beside(candidate("a", 0)), bergv1.ReasonOwnerBusy},
		"older sibling without a Challenge":       {beside(candidate("a", 0, withoutChallenge)), ""},
		"older sibling without a flag":            {beside(candidate("a", 0, flagged)), ""},
		"older sibling, started, Challenge gone":  {beside(candidate("a", 0, wasStarted, withoutChallenge)), bergv1.ReasonOwnerBusy},
		"older sibling of a frozen Challenge":     {beside(candidate("a", 0, frozenOne)), ""},
		"older sibling being deleted":             {beside(candidate("a", 0, beingDeleted)), ""},
		"older sibling that is asked to end":      {beside(candidate("a", 0, askedToEnd)), ""},
		"younger sibling":                         {beside(candidate("a", 9)), ""},
		"younger sibling that was started":        {beside(candidate("a", 9, wasStarted)), bergv1.ReasonOwnerBusy},
		"twin with a lower UID":                   {beside(candidate("a", 5)), bergv1.ReasonOwnerBusy},
		"twin with a higher UID":                  {beside(candidate("z", 5)), ""},
		"twin with a higher UID, started":         {beside(candidate("z", 5, wasStarted)), bergv1.ReasonOwnerBusy},
		"two, of which only the younger can be":   {beside(candidate("a", 0, withoutChallenge), candidate("z", 9)), ""},
		"two, of which the first is in the way":   {beside(candidate("a", 0), candidate("z", 9)), bergv1.ReasonOwnerBusy},
		"ours was started, an older one was not":  {observed(candidate("m", 5, wasStarted), nil, candidate("a", 0)), ""},
		"ours was started, an older one was too":  {observed(candidate("m", 5, wasStarted), nil, candidate("a", 0, wasStarted)), bergv1.ReasonOwnerBusy},
		"ours was started, a younger one was too": {observed(candidate("m", 5, wasStarted), nil, candidate("z", 9, wasStarted)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Check(tc.o, testConfig(t, nil).Challenge)
			switch {
			case p == nil && tc.reason != "":
				t.Errorf("no problem, want %s", tc.reason)
			case p != nil && p.Reason != tc.reason:
				t.Errorf("%s (%s), want %q", p.Reason, p.Message, tc.reason)
			}
		})
	}
}

func TestReferencePolicy(t *testing.T) {
	in := func(ns string, modify ...func(*Candidate)) Candidate {
		c := candidate("m", 0, modify...)
		c.Instance.Namespace, c.Key.Namespace = "players", ns
		return c
	}
	for name, tc := range map[string]struct {
		policy string
		c      Candidate
		reason string
	}{
		"any":                               {"Any", in("elsewhere"), ""},
		"configured":                        {"ConfiguredNamespace", in("berg"), ""},
		"configured, elsewhere":             {"ConfiguredNamespace", in("elsewhere"), bergv1.ReasonReferenceNotAllowed},
		"configured, own":                   {"ConfiguredNamespace", in("players"), bergv1.ReasonReferenceNotAllowed},
		"same":                              {"SameNamespace", in("players"), ""},
		"same, configured":                  {"SameNamespace", in("berg"), bergv1.ReasonReferenceNotAllowed},
		"same, elsewhere and missing":       {"SameNamespace", in("elsewhere", withoutChallenge), bergv1.ReasonReferenceNotAllowed},
		"same, elsewhere, but it was begun": {"SameNamespace", in("elsewhere", wasStarted), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Check(Observed{Candidate: tc.c}, testConfig(t, map[string]string{"CHALLENGE_REF_POLICY": tc.policy}).Challenge)
			switch {
			case p == nil && tc.reason != "":
				t.Errorf("no problem, want %s", tc.reason)
			case p != nil && p.Reason != tc.reason:
				t.Errorf("%s (%s), want %q", p.Reason, p.Message, tc.reason)
			case p != nil && !strings.Contains(p.Message, "spec.challengeRef.namespace"):
				t.Errorf("the message does not name the field: %s", p.Message)
			}
		})
	}
}

// In every order in which a replica sees the instances of an owner, the same one is the first.
func TestExactlyOneInstanceOfAnOwnerIsFirst(t *testing.T) {
	all := []Candidate{
		candidate("d", 0, withoutChallenge), candidate("c", 1), candidate("b", 1), candidate("a", 2),
		candidate("e", 0, beingDeleted), candidate("f", 3),
	}
	for rotation := range all {
		order := append(slices.Clone(all[rotation:]), all[:rotation]...)
		for _, reversed := range []bool{false, true} {
			if reversed {
				slices.Reverse(order)
			}
			var goes []string
			for _, c := range order {
				if c.Instance.DeletionTimestamp != nil {
					continue // it is ended, not built
				}
				var siblings []Candidate
				for _, s := range order {
					if s.Instance.UID != c.Instance.UID {
						siblings = append(siblings, s)
					}
				}
				if Check(observed(c, nil, siblings...), testConfig(t, nil).Challenge) == nil {
					goes = append(goes, c.Instance.Name)
				}
			}
			if fmt.Sprint(goes) != "[b]" {
				t.Errorf("rotation %d, reversed %v: %v go first, want [b]", rotation, reversed, goes)
			}
		}
	}
}

func TestGoesFirstIsATotalOrder(t *testing.T) {
	var all []*bergv1.ChallengeInstance
	for _, second := range []int{0, 0, 7} {
		for _, modify := range [][]func(*Candidate){nil, {wasStarted}} {
			all = append(all, candidate(fmt.Sprint("uid-", len(all)), second, modify...).Instance)
		}
	}
	for _, a := range all {
		if goesFirst(a, a) {
			t.Errorf("%s goes before itself", a.Name)
		}
		for _, b := range all {
			if a != b && goesFirst(a, b) == goesFirst(b, a) {
				t.Errorf("%s and %s: no order", a.Name, b.Name)
			}
			for _, c := range all {
				if goesFirst(a, b) && goesFirst(b, c) && !goesFirst(a, c) {
					t.Errorf("%s, %s, %s: not transitive", a.Name, b.Name, c.Name)
				}
			}
		}
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *bergv1.ChallengeInstance) int {
		if goesFirst(a, b) {
			return -1
		}
		return cmp.Compare(1, 0)
	})
	if got := sorted[0].Name; got != "uid-1" {
		t.Errorf("%s goes first, want the oldest of those that were started", got)
	}
}

// Who waits is told of the one right before it, so that of many only one has something new
// to tell when the first is gone; and who leaves or comes concerns the one right behind.
func TestWaitsForTheOneBefore(t *testing.T) {
	all := []Candidate{
		candidate("runs", 7, wasStarted), candidate("a", 1), candidate("b", 2, withoutChallenge),
		candidate("c", 3), candidate("d", 3), candidate("e", 4, beingDeleted), candidate("f", 5),
	}
	instances, contends := owned(all)
	ns := namespaceOf("runs")
	for uid, want := range map[types.UID]struct{ ahead, behind types.UID }{
		"runs": {"", "a"}, "a": {"runs", "c"}, "b": {"a", "c"}, "c": {"a", "d"}, "d": {"c", "f"}, "e": {"d", "f"}, "f": {"d", ""},
	} {
		at := slices.IndexFunc(instances, func(i *bergv1.ChallengeInstance) bool { return i.UID == uid })
		me, others := instances[at], slices.Delete(slices.Clone(instances), at, at+1)
		before, after := Ahead(me, others, contends), Behind(me, others, contends)
		if got := uidOf(before); got != want.ahead {
			t.Errorf("%s: %q is ahead, want %q", uid, got, want.ahead)
		}
		if got := uidOf(after); got != want.behind {
			t.Errorf("%s: %q is behind, want %q", uid, got, want.behind)
		}
		if uid == "runs" || all[at].Challenge == nil {
			continue
		}
		p := Check(Observed{Candidate: all[at], Namespace: ns, Holder: Holder(ns, others), Ahead: before}, testConfig(t, nil).Challenge)
		if p == nil || !strings.Contains(p.Message, "/"+string(want.ahead)+" ") {
			t.Errorf("%s: it does not name %s: %+v", uid, want.ahead, p)
		}
	}
}

func uidOf(i *bergv1.ChallengeInstance) types.UID {
	if i == nil {
		return ""
	}
	return i.UID
}

func TestConflictMessageNamesTheNamespaceAndTheRemedy(t *testing.T) {
	for name, tc := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"foreign":       {namespaceOf("u"), []string{"does not belong to this instance", "Delete it"}},
		"left":          {namespaceOf("u", labelled), []string{"left behind by instance berg/former", "Delete the namespace", "ORPHAN_GRACE_PERIOD"}},
		"left, it ends": {namespaceOf("u", labelled, terminating), []string{"left behind by instance berg/former", "is being deleted", "starts afterwards"}},
	} {
		p := Check(observed(candidate("m", 5), tc.ns), testConfig(t, nil).Challenge)
		if p == nil || p.Reason != bergv1.ReasonNamespaceConflict {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		for _, part := range append(tc.want, tc.ns.Name) {
			if !strings.Contains(p.Message, part) {
				t.Errorf("%s: %q does not say %q", name, p.Message, part)
			}
		}
	}
}

func TestInstanceUIDOf(t *testing.T) {
	for name, tc := range map[string]struct {
		ns   *corev1.Namespace
		want bool
	}{
		"ours":               {namespaceOf("u", labelled), true},
		"without labels":     {namespaceOf("u"), false},
		"of another manager": {namespaceOf("u", labelled, func(n *corev1.Namespace) { n.Labels[bergv1.LabelManagedBy] = "helm" }), false},
		"of another kind":    {namespaceOf("u", labelled, func(n *corev1.Namespace) { delete(n.Labels, bergv1.LabelComponent) }), false},
		"without a UID":      {namespaceOf("", labelled), false},
		"of another name":    {namespaceOf("u", labelled, func(n *corev1.Namespace) { n.Name = "berg" }), false},
		"empty":              {&corev1.Namespace{}, false},
		"terminating":        {namespaceOf("u", labelled, terminating), true},
	} {
		if _, got := manifests.InstanceUIDOf(tc.ns); got != tc.want {
			t.Errorf("%s: provable is %v", name, got)
		}
	}
}

// labelled is a namespace as the operator makes it for an instance.
func labelled(n *corev1.Namespace) {
	n.Labels = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace}
	n.Annotations[bergv1.AnnotationInstance] = "berg/former"
}
