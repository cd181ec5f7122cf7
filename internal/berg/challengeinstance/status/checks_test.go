package status

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
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

func namespaceOf(owner types.UID, modify ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifests.NamespaceName("a1b2c3d4-e5f6-7890-abcd-ef1234567890")}}
	ownership.Owner{Annotation: bergv1.AnnotationInstanceUID, UID: owner}.SetOn(n)
	for _, m := range modify {
		m(n)
	}
	return n
}

func terminating(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{Time: noon} }

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
	jail := func(c *Candidate) {
		c.Challenge = challengeOf(manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "jail", Image: "i", Sandbox: bergv1.SandboxNested}}})
		c.Nodes = nodes.Support{None: true}
	}
	withNode := func(c *Candidate) { c.Nodes = nodes.Support{} }
	nulFlag := func(c *Candidate) { c.Instance.Spec.Flag = "flag{a\x00b}" }
	frozenOne := func(c *Candidate) {
		c.Challenge.Annotations = map[string]string{bergv1.AnnotationFrozen: "2025-06-01T12:00:00Z"}
	}
	holding := func(ns *corev1.Namespace) Observed { return Observed{Candidate: me, Namespace: ns} }
	const secret = "known to the operator alone"
	begun := func(change func(*bergv1.ChallengeInstanceStatus), ns *corev1.Namespace) Observed {
		c := candidate("m", 5, wasStarted)
		change(&c.Instance.Status)
		return Observed{Candidate: c, Namespace: ns}
	}
	created := func(s *bergv1.ChallengeInstanceStatus) { s.NamespaceUID = "created" }
	digested := func(s *bergv1.ChallengeInstanceStatus) {
		s.NamespaceTokenHash = fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))
	}
	withoutProof := func(*bergv1.ChallengeInstanceStatus) {}
	withUID := func(uid types.UID) func(*corev1.Namespace) { return func(n *corev1.Namespace) { n.UID = uid } }
	withProof := func(proof string) func(*corev1.Namespace) {
		return func(n *corev1.Namespace) { n.Annotations[bergv1.AnnotationNamespaceToken] = proof }
	}
	withID := func(id string) func(*corev1.Namespace) {
		return func(n *corev1.Namespace) { n.Labels = map[string]string{bergv1.LabelInstanceID: id} }
	}
	id := candidate("m", 5, wasStarted).Instance.Status.InstanceID

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
		"jail without a node":               {Observed{Candidate: candidate("m", 5, jail)}, bergv1.ReasonNoSuitableNode},
		"jail without a node, started":      {Observed{Candidate: candidate("m", 5, jail, wasStarted)}, ""},
		"jail and a node":                   {Observed{Candidate: candidate("m", 5, jail, withNode)}, ""},
		"no jail, no node":                  {Observed{Candidate: candidate("m", 5, func(c *Candidate) { c.Nodes = nodes.Support{None: true} })}, ""},
		"flag with a NUL":                   {Observed{Candidate: candidate("n", 5, flagged, nulFlag)}, bergv1.ReasonInvalidFlag},
		"flag with a NUL, in a file":        {Observed{Candidate: candidate("n", 5, inFile, nulFlag)}, ""},
		"flag with a NUL, not wanted":       {Observed{Candidate: candidate("n", 5, nulFlag)}, ""},
		"flag missing":                      {Observed{Candidate: candidate("m", 5, flagged)}, bergv1.ReasonFlagMissing},
		"flag there":                        {Observed{Candidate: candidate("m", 5, flagged, withFlag)}, ""},
		"flag wanted only by an edit":       {Observed{Candidate: candidate("m", 5, flagged, wasStarted)}, ""},

		"namespace before the start":            {holding(namespaceOf("m")), bergv1.ReasonNamespaceConflict},
		"namespace is ours":                     {begun(created, namespaceOf("m", withUID("created"))), ""},
		"namespace is ours, deleted by hand":    {begun(created, namespaceOf("m", withUID("created"), terminating)), bergv1.ReasonWaiting},
		"namespace was replaced":                {begun(created, namespaceOf("m", withUID("other"), withProof(secret), withID(id))), bergv1.ReasonNamespaceConflict},
		"namespace was handed over":             {begun(created, namespaceOf("other", withUID("created"))), bergv1.ReasonNamespaceConflict},
		"namespace with the secret":             {begun(digested, namespaceOf("m", withProof(secret))), ""},
		"namespace with a copy of the digest":   {begun(digested, namespaceOf("m", withProof(fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))), withID(id))), bergv1.ReasonNamespaceConflict},
		"namespace with all but the secret":     {begun(digested, namespaceOf("m", withID(id))), bergv1.ReasonNamespaceConflict},
		"a namespace without a proof":           {begun(withoutProof, namespaceOf("m")), bergv1.ReasonNamespaceConflict},
		"namespace without proof":               {holding(&corev1.Namespace{}), bergv1.ReasonNamespaceConflict},
		"namespace of an instance that is gone": {holding(namespaceOf("gone")), bergv1.ReasonNamespaceConflict},
	} {
		t.Run(name, func(t *testing.T) {
			p := Check(tc.o, testConfig(t, map[string]string{"CHALLENGE_NESTED_SECCOMP_PROFILE": "a.json"}).Challenge)
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
		"trusted, not of it":                {"TrustedNamespace", in("berg"), bergv1.ReasonReferenceNotAllowed},
		"trusted, not of it, own":           {"TrustedNamespace", in("players"), ""},
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

func TestConflictMessageNamesTheNamespaceAndTheRemedy(t *testing.T) {
	for name, tc := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"copied":        {namespaceOf("m", labelled), []string{"did not create it for this instance", "Nothing is written in it", "Delete it"}},
		"foreign":       {namespaceOf("u"), []string{"does not belong to this instance", "Delete it"}},
		"left":          {namespaceOf("u", labelled), []string{"left behind by instance berg/former", "Delete the namespace", "ORPHAN_GRACE_PERIOD"}},
		"left, it ends": {namespaceOf("u", labelled, terminating), []string{"left behind by instance berg/former", "is being deleted", "starts afterwards"}},
	} {
		p := Check(Observed{Candidate: candidate("m", 5), Namespace: tc.ns}, testConfig(t, nil).Challenge)
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
		if _, got := manifests.ReadInstanceUID(tc.ns); got != tc.want {
			t.Errorf("%s: provable is %v", name, got)
		}
	}
}

// labelled is a namespace as the operator makes it for an instance.
func labelled(n *corev1.Namespace) {
	n.Labels = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace}
	n.Annotations[bergv1.AnnotationInstance] = "berg/former"
}

func TestNamespacesOfInstances(t *testing.T) {
	for name, tc := range map[string]struct {
		from, taken string
		modify      func(*Candidate)
		reason      string
	}{
		"all":                         {"players", "", withoutChallenge, bergv1.ReasonChallengeMissing},
		"named":                       {"players", "berg,players", withoutChallenge, bergv1.ReasonChallengeMissing},
		"not named":                   {"others", "berg,players", withoutChallenge, bergv1.ReasonNamespaceNotAllowed},
		"not named, but it was begun": {"others", "berg", wasStarted, ""},
	} {
		c := candidate("m", 0, tc.modify)
		c.Instance.Namespace, c.Key.Namespace = tc.from, tc.from
		p := Check(Observed{Candidate: c}, testConfig(t, map[string]string{"CHALLENGE_INSTANCE_NAMESPACES": tc.taken}).Challenge)
		if got := (p != nil && p.Reason == tc.reason); got != (tc.reason != "") {
			t.Errorf("%s: %+v, want %q", name, p, tc.reason)
		}
	}
}
