package why

import (
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// explanation is the meaning of a reason, and what to do.
type explanation struct {
	sentence, do string
	level        Level
}

// explain returns the explanation of a failed step.
func explain(c *metav1.Condition) explanation {
	e, known := explanations[c.Reason]
	if !known {
		e = explanation{sentence: "The step {STEP} failed: " + c.Reason + ".", do: "Read the message. The operator retries."}
	}
	if e.level == "" {
		e.level = Problem
	}
	words := Words(c.Type)
	object := strings.Join(words[:max(1, len(words)-1)], " ")
	e.sentence = strings.NewReplacer("{STEP}", strings.Join(words, " "), "{OBJECT}", object).Replace(e.sentence)
	return e
}

// Words returns the words in the name of a condition, as in "network policy created".
func Words(name string) []string {
	var text strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			text.WriteByte(' ')
		}
		text.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(text.String())
}

// explanations are by reason. {OBJECT} is the object of the step, {STEP} the whole step; fillIn
// replaces the other placeholders.
var explanations = map[string]explanation{
	bergv1.ReasonChallengeMissing: {
		sentence: "The Challenge does not exist.",
		do:       "Create the Challenge {CHALLENGE}, or fix spec.challengeRef. The instance starts when the Challenge exists. List Challenges: kubectl get challenges.berg.norelect.ch -A",
	},
	bergv1.ReasonReferenceNotAllowed: {
		sentence: "The operator's setting CHALLENGE_REF_POLICY does not allow this namespace to use Challenges of the other namespace.",
		do:       "Use a Challenge that is allowed, or ask the administrator.",
	},
	bergv1.ReasonNamespaceNotAllowed: {
		sentence: "The operator's setting CHALLENGE_INSTANCE_NAMESPACES does not name the namespace of this instance.",
		do:       "Create the instance in a namespace that the setting names, or ask the administrator to add this one.",
	},
	bergv1.ReasonNothingToRun: {
		sentence: "The Challenge has no containers.",
		do:       "Add spec.containers: kubectl edit challenges.berg.norelect.ch {CHALLENGE}; its instances then start.",
	},
	bergv1.ReasonInvalidChallenge: {
		sentence: "The Challenge is invalid.",
		do:       "Fix the fields that the message names: kubectl edit challenges.berg.norelect.ch {CHALLENGE}; its instances then start.",
	},
	bergv1.ReasonNoSuitableNode: {
		sentence: "No node of the cluster can run the Challenge.",
		do:       "Ask the administrator to prepare a node as the message says; the instances of {CHALLENGE} then start. kubectl berg doctor shows which nodes can.",
	},
	bergv1.ReasonFlagMissing: {
		sentence: "The Challenge needs a flag for each instance, but the instance has none.",
		do:       `Set it once: kubectl patch ci {NAME} -n {NAMESPACE} --type merge -p '{"spec":{"flag":"flag{...}"}}'`,
	},
	bergv1.ReasonInvalidFlag: {
		sentence: "The flag cannot be passed to the containers.",
		do:       "Delete the instance and create it with another flag, of at most 1024 bytes and without a NUL character.",
	},
	bergv1.ReasonQueued: {
		level:    Waiting,
		sentence: "The instance is queued: a limit on the number of instances is reached. Its timeout has not started.",
		do:       "Wait: it starts when other instances have ended and the ones before it have started. To allow more, raise the limit that the message names, such as CHALLENGE_MAX_INSTANCES or spec.maxInstances of Challenge {CHALLENGE}.",
	},
	bergv1.ReasonOwnerBusy: {
		level:    Waiting,
		sentence: "Another instance of the same owner exists: an owner has one instance at a time.",
		do:       "Wait for the end of the instance that the message names, or end it: kubectl berg end OTHER -n {NAMESPACE}",
	},
	bergv1.ReasonNamespaceConflict: {
		sentence: "A namespace with the required name exists, but it does not belong to this instance.",
		do:       "If the namespace is not needed, delete it: kubectl delete namespace {OBJECTS}",
	},
	bergv1.ReasonObjectConflict: {
		sentence: "The {OBJECT} cannot be created: an object with the same name exists, but it does not belong to this instance.",
		do:       "Delete the object that the message names from the namespace {OBJECTS}, or restore its ownership label: berg.norelect.ch/instance-uid={UID}",
	},
	bergv1.ReasonRevisionMissing: {
		sentence: "The instance is not repaired: the operator cannot read the content that it was started with.",
		do:       "Restore the Secret that the message names from a backup, adopt the Challenge as it is now: kubectl berg rollout {CHALLENGE} -n {NAMESPACE}, or end the instance",
	},
	bergv1.ReasonContested: {
		sentence: "The {OBJECT} cannot be kept: another client keeps modifying or deleting it.",
		do:       "Stop the client that the message names. The operator repairs the object with exponential backoff.",
	},
	bergv1.ReasonAPINotInstalled: {
		sentence: "The {OBJECT} cannot be created: the cluster does not serve the required API.",
		do:       "Install what the message names (Cilium or the Gateway API), or change the operator's setting NETWORK_POLICY. The operator then resumes. kubectl berg doctor checks both.",
	},
	bergv1.ReasonRefused: {
		sentence: "The {OBJECT} cannot be created: the API server refuses the request.",
		do:       "Change the quota, the admission policy or the webhook that the message names. The operator retries.",
	},
	bergv1.ReasonWriteFailed: {
		sentence: "The {OBJECT} could not be written: the API server failed or did not answer.",
		do:       "The operator retries. If this continues, check the API server: kubectl get --raw '/readyz?verbose'",
	},
	bergv1.ReasonWaiting: {
		level:    Waiting,
		sentence: "The {OBJECT} must be created again.",
		do:       "Wait: the operator continues by itself.",
	},
}
