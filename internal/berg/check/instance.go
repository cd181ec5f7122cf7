package check

import (
	"cmp"
	"crypto/rand"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// unschedulable is the scheduler's reason, which an instance repeats as its own.
const unschedulable = "Unschedulable"

// instanceName is the name of the instance of a check, in the namespace of the ChallengeCheck.
func instanceName(c *bergv1.ChallengeCheck) string { return "check-" + string(c.UID) }

// ownerID is the owner of the instance of a check: a UID is a UUID that no player has.
func ownerID(c *bergv1.ChallengeCheck) string { return strings.ToLower(string(c.UID)) }

// instance returns the instance for the solver. The ChallengeCheck owns it, so that both are
// deleted together, and it expires if no operator deletes it.
func instance(c *bergv1.ChallengeCheck, flag string) *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name:      instanceName(c),
			Namespace: c.Namespace,
			Labels:    map[string]string{bergv1.LabelCheck: naming.LabelValue(c.Name)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: bergv1.GroupVersion.String(), Kind: "ChallengeCheck", Name: c.Name, UID: c.UID, Controller: ptr.To(true),
			}},
		},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: c.Spec.ChallengeRef,
			OwnerID:      ownerID(c),
			Flag:         flag,
			Timeout:      lifetime(c).String(),
		},
	}
	ownerFor(c).SetOn(i)
	return i
}

// newFlag returns a flag that cannot be guessed, in the form of the Challenge's flags: a solver may
// search for that form. It is drawn at the creation and not derived from anything, so that no solver and no player can compute
// the flag of a check.
func newFlag(challenge *bergv1.Challenge) string {
	return flagPrefix(challenge) + "check_" + strings.ToLower(rand.Text()) + "}"
}

// maxPrefix is more than any event has before the brace of its flags.
const maxPrefix = 64

// flagPrefix returns the common beginning of the flags of a Challenge, up to the brace.
func flagPrefix(challenge *bergv1.Challenge) string {
	for _, like := range []string{challenge.Spec.FlagFormat, challenge.Spec.Flag} {
		if prefix, _, ok := strings.Cut(like, "{"); ok && prefix != "" && len(prefix) <= maxPrefix && strings.IndexFunc(prefix, notPlain) < 0 {
			return prefix + "{"
		}
	}
	return "flag{"
}

func notPlain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// dynamic reports whether the containers of a Challenge get the flag of their instance.
func dynamic(challenge *bergv1.Challenge) bool {
	for _, c := range challenge.Spec.Containers {
		if c.DynamicFlag != nil {
			return true
		}
	}
	return false
}

// expected returns the flag that a solver has to find: the instance's, or, where no container gets
// it, the one flag of the Challenge.
func expected(challenge *bergv1.Challenge, i *bergv1.ChallengeInstance) string {
	if dynamic(challenge) {
		return i.Spec.Flag
	}
	return challenge.Spec.Flag
}

// conditionReason returns the reason of a condition of an instance, "" if there is none.
func conditionReason(i *bergv1.ChallengeInstance, conditionType string) string {
	if c := apimeta.FindStatusCondition(i.Status.Conditions, conditionType); c != nil {
		return c.Reason
	}
	return ""
}

// startOrder are the conditions of an instance in the order in which it is built.
var startOrder = []string{
	bergv1.ConditionChallengeFound, bergv1.ConditionFlagValidation, bergv1.ConditionAdmitted, bergv1.ConditionNamespaceCreated, bergv1.ConditionNetworkPolicyCreated,
	bergv1.ConditionServicesCreated, bergv1.ConditionRoutesCreated, bergv1.ConditionDeploymentsCreated, bergv1.ConditionPodsReady,
}

// findCause is why an instance is not Running, as it says itself.
func findCause(i *bergv1.ChallengeInstance) (reason, message string) {
	for _, step := range startOrder {
		if c := apimeta.FindStatusCondition(i.Status.Conditions, step); c != nil && c.Status != metav1.ConditionTrue {
			return c.Reason, c.Message
		}
	}
	return bergv1.ReasonStarting, "it does not say why"
}

// reasonText is the cause that players see; the reason, of an instance that says none.
func reasonText(i *bergv1.ChallengeInstance, reason string) string {
	return cmp.Or(string(i.Status.Cause), reason)
}
