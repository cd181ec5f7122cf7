package challenge

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func testChallenge() *hexactfv1.Challenge {
	return &hexactfv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "event", Name: "challenge-42-alice", UID: "7c0ffee0", Generation: 1,
			Labels:            map[string]string{hexactfv1.LabelChallengeID: "42", hexactfv1.LabelUser: "alice"},
			CreationTimestamp: metav1.Time{Time: noon},
		},
		Spec:   hexactfv1.ChallengeSpec{Definition: "web"},
		Status: hexactfv1.ChallengeStatus{CurrentStatus: hexactfv1.CurrentStatus{State: hexactfv1.StateNone}},
	}
}

// Invalid input is reported before any object is created, by the name of its field.
func TestCheck(t *testing.T) {
	good := definitionOf(newComponent("web", corev1.ServiceTypeNodePort, 8080))
	for name, tc := range map[string]struct {
		challenge  func(*hexactfv1.Challenge)
		definition func(*hexactfv1.ChallengeDefinition)
		reason     string // "": no problem
		says       string
	}{
		"good":                    {},
		"namespace said again":    {challenge: func(c *hexactfv1.Challenge) { c.Spec.Namespace = "event" }},
		"another namespace":       {challenge: func(c *hexactfv1.Challenge) { c.Spec.Namespace = "other" }, reason: hexactfv1.ReasonNamespaceMismatch, says: "spec.namespace"},
		"no challengeId":          {challenge: func(c *hexactfv1.Challenge) { delete(c.Labels, hexactfv1.LabelChallengeID) }, reason: hexactfv1.ReasonInvalidLabels, says: "apps.hexactf.io/challengeId"},
		"empty user":              {challenge: func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelUser] = "" }, reason: hexactfv1.ReasonInvalidLabels, says: "apps.hexactf.io/user"},
		"no labels":               {challenge: func(c *hexactfv1.Challenge) { c.Labels = nil }, reason: hexactfv1.ReasonInvalidLabels, says: "apps.hexactf.io/user"},
		"upper case":              {challenge: func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelUser] = "Alice" }, reason: hexactfv1.ReasonInvalidLabels, says: `"Alice"`},
		"dots":                    {challenge: func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelChallengeID] = "4.2" }, reason: hexactfv1.ReasonInvalidLabels, says: "lower-case letters"},
		"at sign":                 {challenge: func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelUser] = "a@b!" }, reason: hexactfv1.ReasonInvalidLabels, says: "apps.hexactf.io/user"},
		"no components":           {definition: func(d *hexactfv1.ChallengeDefinition) { d.Spec.Components = nil }, reason: hexactfv1.ReasonInvalidDefinition, says: "spec.components: Required"},
		"component in upper case": {definition: func(d *hexactfv1.ChallengeDefinition) { d.Spec.Components[0].Name = "Web!" }, reason: hexactfv1.ReasonInvalidDefinition, says: "spec.components[0].name"},
		"two of one name": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components = append(d.Spec.Components, d.Spec.Components[0])
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "spec.components[1].name: Duplicate"},
		"no deployment": {definition: func(d *hexactfv1.ChallengeDefinition) { d.Spec.Components[0].Deployment = nil }, reason: hexactfv1.ReasonInvalidDefinition, says: "spec.components[0].deployment"},
		"no containers": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components[0].Deployment.Spec.Template.Spec.Containers = nil
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "containers: Required"},
		"no image": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components[0].Deployment.Spec.Template.Spec.Containers[0].Image = ""
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "containers[0].image"},
		"a volume": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components[0].Deployment.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "volumeMounts"},
		"service without ports": {definition: func(d *hexactfv1.ChallengeDefinition) { d.Spec.Components[0].Service.Spec.Ports = nil }, reason: hexactfv1.ReasonInvalidDefinition, says: "service.spec.ports"},
		"ports without names": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components[0].Service.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80}, {Port: 81}}
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "ports[1].name"},
		"external name": {definition: func(d *hexactfv1.ChallengeDefinition) { d.Spec.Components[0].Service.Spec.Type = "ExternalName" }, reason: hexactfv1.ReasonInvalidDefinition, says: "service.spec.type"},
		"negative replicas": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components[0].Deployment.Spec.Replicas = ptr.To[int32](-1)
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "replicas"},
		"no time": {definition: func(d *hexactfv1.ChallengeDefinition) { d.Spec.Duration = &metav1.Duration{} }, reason: hexactfv1.ReasonInvalidDefinition, says: "spec.duration"},
		"far too large": {definition: func(d *hexactfv1.ChallengeDefinition) {
			d.Spec.Components[0].Deployment.Spec.Template.Spec.Containers[0].Command = []string{strings.Repeat("x", maxSnapshot)}
		}, reason: hexactfv1.ReasonInvalidDefinition, says: "bytes as JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := testChallenge(), good.DeepCopy()
			if tc.challenge != nil {
				tc.challenge(c)
			}
			if tc.definition != nil {
				tc.definition(d)
			}
			p := check(Observed{Challenge: c, Definition: d}, config.HexaCTF{})
			if tc.reason == "" {
				if p != nil {
					t.Fatalf("%s: %s", p.Reason, p.Message)
				}
				return
			}
			if p == nil || p.Reason != tc.reason || !strings.Contains(p.Message, tc.says) {
				t.Fatalf("got %+v, want %s that says %q", p, tc.reason, tc.says)
			}
			if len(p.Message) > 2048 {
				t.Errorf("the message has %d bytes", len(p.Message))
			}
			// A problem of labels or definition does not concern a challenge that was started.
			if p := check(Observed{Challenge: c, Started: &Snapshot{}}, config.HexaCTF{}); p != nil {
				t.Errorf("a challenge that was started is checked: %s", p.Message)
			}
		})
	}
}

func TestMissingDefinition(t *testing.T) {
	c := testChallenge()
	p := check(Observed{Challenge: c}, config.HexaCTF{})
	if p == nil || p.Reason != hexactfv1.ReasonDefinitionNotFound || !strings.Contains(p.Message, "event/web") {
		t.Fatalf("got %+v", p)
	}
	if terminal(c, p, 5*time.Minute, noon.Add(time.Hour)) {
		t.Error("it is given up before a status says what is missing")
	}
	computeStatus(Outcome{Observed: Observed{Challenge: c}, Problem: p}, testConfig(t, nil), noon)
	for after, want := range map[time.Duration]bool{0: false, 5*time.Minute - time.Second: false, 5 * time.Minute: true} {
		if got := terminal(c, p, 5*time.Minute, noon.Add(after)); got != want {
			t.Errorf("after %s: terminal is %v", after, got)
		}
	}
	if terminal(c, nil, time.Minute, noon.Add(time.Hour)) || terminal(c, &outcome.Problem{Reason: hexactfv1.ReasonRefused}, time.Minute, noon.Add(time.Hour)) {
		t.Error("a problem that can still be fixed is terminal")
	}
	for _, reason := range []string{hexactfv1.ReasonInvalidLabels, hexactfv1.ReasonNamespaceMismatch} {
		if !terminal(c, &outcome.Problem{Reason: reason}, time.Minute, noon) {
			t.Errorf("%s is not terminal", reason)
		}
	}
}

func TestProblemOf(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for name, tc := range map[string]struct {
		err    error
		other  otherOwner
		class  outcome.Class
		reason string
	}{
		"of another owner":               {&ownership.RefusedError{Kind: "Service", Name: "s"}, otherOwner{}, outcome.External, hexactfv1.ReasonOwnershipConflict},
		"of an earlier challenge":        {&ownership.RefusedError{Kind: "Service", Name: "s"}, otherOwner{Terminating: true}, outcome.Waiting, hexactfv1.ReasonWaiting},
		"terminating":                    {&apply.TerminatingError{Kind: "Deployment", Name: "d"}, otherOwner{}, outcome.Waiting, hexactfv1.ReasonWaiting},
		"contested":                      {&apply.ContestedError{Kind: "Deployment", Name: "d"}, otherOwner{}, outcome.Retry, hexactfv1.ReasonContested},
		"conflict":                       {apierrors.NewConflict(deployments, "d", errors.New("changed")), otherOwner{}, outcome.Stale, hexactfv1.ReasonWaiting},
		"refused":                        {apierrors.NewForbidden(deployments, "d", errors.New("exceeded quota")), otherOwner{}, outcome.External, hexactfv1.ReasonRefused},
		"the API server does not answer": {errors.New("connection refused"), otherOwner{}, outcome.Retry, hexactfv1.ReasonWriteFailed},
		"the kind is not served":         {apierrors.NewMethodNotSupported(deployments, "create"), otherOwner{}, outcome.External, hexactfv1.ReasonAPINotInstalled},
	} {
		p := newProblem(tc.err, tc.other)
		if p.Class != tc.class || p.Reason != tc.reason || p.Condition != hexactfv1.ConditionResourcesCreated {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
