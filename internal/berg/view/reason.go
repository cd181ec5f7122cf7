package view

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Reason is the reason of a condition of an instance. The operator takes the reasons of pods from Kubernetes.
type Reason string

// outOfPrefix begins the reasons with which a kubelet rejects a pod for lack of a resource.
const outOfPrefix = "OutOf"

// Advice explains a Reason to organisers, and names the action that helps.
type Advice struct {
	// Cause is the reason as players see it.
	Cause bergv1.Cause
	// Sentence describes the problem, and Do the action. {OBJECT} is the object of the step, {STEP} the whole step. {NAME},
	// {NAMESPACE}, {CHALLENGE}, {OBJECTS} (the namespace of the objects) and {UID} belong to the instance.
	Sentence, Do string
}

// reasons has a row for each Reason of the API, without a Cause if it shows no problem, and one for each reason of pods that is more than
// "not ready yet". A test names a Reason of the API without a row.
var reasons = map[Reason]Advice{
	bergv1.ReasonChallengeMissing: {
		bergv1.CauseInvalid, "The Challenge does not exist.",
		"Create the Challenge {CHALLENGE}, or fix spec.challengeRef. The instance starts when the Challenge exists. List Challenges: kubectl get challenges.berg.norelect.ch -A",
	},
	bergv1.ReasonReferenceNotAllowed: {
		bergv1.CauseInvalid, "The operator's setting CHALLENGE_REF_POLICY does not allow this namespace to use Challenges of the other namespace.",
		"Use a Challenge that is allowed, or ask the administrator.",
	},
	bergv1.ReasonNamespaceNotAllowed: {
		bergv1.CauseInvalid, "The operator's setting CHALLENGE_INSTANCE_NAMESPACES does not name the namespace of this instance.",
		"Create the instance in a namespace that the setting names, or ask the administrator to add this one.",
	},
	bergv1.ReasonNothingToRun: {
		bergv1.CauseInvalid, "The Challenge has no containers.",
		"Add spec.containers: kubectl edit challenges.berg.norelect.ch {CHALLENGE}; its instances then start.",
	},
	bergv1.ReasonInvalidChallenge: {
		bergv1.CauseInvalid, "The Challenge is invalid.",
		"Fix the fields that the message names: kubectl edit challenges.berg.norelect.ch {CHALLENGE}; its instances then start.",
	},
	bergv1.ReasonNoSuitableNode: {
		bergv1.CauseRefused, "No node of the cluster can run the Challenge.",
		"Ask the administrator to prepare a node as the message says; the instances of {CHALLENGE} then start. kubectl berg doctor shows which nodes can.",
	},
	bergv1.ReasonFlagMissing: {
		bergv1.CauseInvalid, "The Challenge needs a flag for each instance, but the instance has none.",
		`Set it once: kubectl patch ci {NAME} -n {NAMESPACE} --type merge -p '{"spec":{"flag":"flag{...}"}}'`,
	},
	bergv1.ReasonInvalidFlag: {
		bergv1.CauseInvalid, "The flag cannot be passed to the containers.",
		"Delete the instance and create it with another flag, of at most 1024 bytes and without a NUL character.",
	},
	bergv1.ReasonFrozen: {
		bergv1.CauseFrozen, "The Challenge is frozen: no new instance of it starts.",
		"Wait, or end the freeze: kubectl berg unfreeze -n {NAMESPACE}",
	},
	bergv1.ReasonQueued: {
		bergv1.CauseQueued, "The instance is queued: a limit on the number of instances is reached. Its timeout has not started.",
		"Wait: it starts when other instances have ended and the ones before it have started. To allow more, raise the limit that the message names, such as CHALLENGE_MAX_INSTANCES or spec.maxInstances of Challenge {CHALLENGE}.",
	},
	bergv1.ReasonOwnerBusy: {
		bergv1.CauseOwnerBusy, "Another instance of the same owner exists: an owner has one instance at a time.",
		"Wait for the end of the instance that the message names, or end it: kubectl berg end OTHER -n {NAMESPACE}",
	},
	bergv1.ReasonNamespaceConflict: {
		bergv1.CauseRefused, "A namespace with the required name exists, but it does not belong to this instance.",
		"If the namespace is not needed, delete it: kubectl delete namespace {OBJECTS}",
	},
	bergv1.ReasonObjectConflict: {
		bergv1.CauseRefused, "The {OBJECT} cannot be created: an object with the same name exists, but it does not belong to this instance.",
		"Delete the object that the message names from the namespace {OBJECTS}, or restore its ownership label: berg.norelect.ch/instance-uid={UID}",
	},
	bergv1.ReasonRevisionMissing: {
		bergv1.CauseInvalid, "The instance is not repaired: the operator cannot read the content that it was started with.",
		"Restore the Secret that the message names from a backup, adopt the Challenge as it is now: kubectl berg rollout {CHALLENGE} -n {NAMESPACE}, or end the instance",
	},
	bergv1.ReasonContested: {
		bergv1.CauseRefused, "The {OBJECT} cannot be kept: another client keeps modifying or deleting it.",
		"Stop the client that the message names. The operator repairs the object with exponential backoff.",
	},
	bergv1.ReasonAPINotInstalled: {
		bergv1.CauseRefused, "The {OBJECT} cannot be created: the cluster does not serve the required API.",
		"Install what the message names (Cilium or the Gateway API), or change the operator's setting NETWORK_POLICY. The operator then resumes. kubectl berg doctor checks both.",
	},
	bergv1.ReasonRefused: {
		bergv1.CauseRefused, "The {OBJECT} cannot be created: the API server refuses the request.",
		"Change the quota, the admission policy or the webhook that the message names. The operator retries.",
	},
	bergv1.ReasonGatewayNotReady: {
		bergv1.CauseRefused, "The Gateway does not serve the addresses of the instance, so players do not reach it.",
		"Install or repair the controller that the message names, or correct the listener: kubectl berg doctor compares the Gateway with the operator's settings.",
	},
	bergv1.ReasonRouteRefused: {
		bergv1.CauseRefused, "The controller of the Gateway refuses a route of the instance, so players do not reach it.",
		"Change what the controller's message names. The listener must allow routes from the namespaces of instances and their host names, " +
			"as in config/berg/samples/prerequisites/gateway.yaml: kubectl berg doctor",
	},
	bergv1.ReasonRoutePending: {
		bergv1.CauseAddressPending, "The controller of the Gateway has not answered for a route of the instance yet.",
		"Wait. If it continues, the controller is too slow, has reached its limit, or does not run: kubectl berg doctor",
	},
	bergv1.ReasonPodUnreached: {
		bergv1.CauseRefused, "The gate serves the addresses of the instance, and does not reach its pods.",
		"Let the namespace of the gate reach instances: GATEWAY_DATAPLANE_NAMESPACES must name it, and no other network policy may be in the way.",
	},
	bergv1.ReasonNoEndpoints: {
		bergv1.CauseAddressPending, "A Service of the instance leads to no pod yet.",
		"Wait. If it continues, the controllers of Kubernetes do not run: kubectl get --raw '/readyz?verbose'",
	},
	bergv1.ReasonServiceMissing: {
		bergv1.CauseRefused, "A Service of the instance does not exist and cannot be created, so players do not reach it.",
		"Change what the message names. The operator retries.",
	},
	bergv1.ReasonOutOfNodePorts: {
		bergv1.CauseNoCapacity, "All node ports of the cluster are in use.",
		"End instances, use host names (publicHttpRoute, publicTlsRoute) in Challenges, or extend --service-node-port-range of the API server. The operator retries.",
	},
	bergv1.ReasonOutOfAddresses: {
		bergv1.CauseNoCapacity, "All addresses for Services of the cluster are in use.",
		"End instances, or add a ServiceCIDR to the cluster. The operator retries.",
	},
	bergv1.ReasonDeletionBlocked: {bergv1.CauseRefused, "The namespace of the instance cannot be deleted.", "Remove what the message names."},
	bergv1.ReasonWriteFailed: {
		bergv1.CauseNotReadyYet, "The {OBJECT} could not be written: the API server failed or did not answer.",
		"The operator retries. If this continues, check the API server: kubectl get --raw '/readyz?verbose'",
	},
	bergv1.ReasonWaiting: {bergv1.CauseNotReadyYet, "The {OBJECT} must be created again.", "Wait: the operator continues by itself."},

	// A pod has not become ready, and Kubernetes does not say why, or it has become ready before.
	bergv1.ReasonStartDeadline: {Cause: bergv1.CauseNotReadyYet},
	bergv1.ReasonPodsNotReady:  {Cause: bergv1.CauseNotReadyYet},
	bergv1.ReasonStarting:      {Cause: bergv1.CauseNotReadyYet},
	bergv1.ReasonCreating:      {Cause: bergv1.CauseNotReadyYet},

	// These show no problem of an instance that starts or runs.
	bergv1.ReasonFound: {}, bergv1.ReasonFlagProvided: {}, bergv1.ReasonFlagNotNeeded: {}, bergv1.ReasonAdmitted: {}, bergv1.ReasonCreated: {},
	bergv1.ReasonNotEnforced: {}, bergv1.ReasonNotNeeded: {}, bergv1.ReasonReady: {}, bergv1.ReasonUpToDate: {}, bergv1.ReasonLive: {},
	bergv1.ReasonChallengeChanged: {}, bergv1.ReasonConfigurationChanged: {}, bergv1.ReasonImageChanged: {},
	bergv1.ReasonTerminating: {}, bergv1.ReasonDeleted: {}, bergv1.ReasonInstanceCreating: {}, bergv1.ReasonInstanceReady: {}, bergv1.ReasonInstanceEnding: {},
	bergv1.ReasonPullSecretMissing: {}, bergv1.ReasonPullSecretConflict: {}, bergv1.ReasonNodePortTaken: {},

	// The reasons of Kubernetes for pods that do not start.
	corev1.PodReasonUnschedulable: {Cause: bergv1.CauseNoCapacity},
	"Evicted":                     {Cause: bergv1.CauseNoCapacity},
	"Preempting":                  {Cause: bergv1.CauseNoCapacity},

	"ErrImagePull":              {Cause: bergv1.CauseImageUnavailable},
	"ImagePullBackOff":          {Cause: bergv1.CauseImageUnavailable},
	"InvalidImageName":          {Cause: bergv1.CauseImageUnavailable},
	"ErrImageNeverPull":         {Cause: bergv1.CauseImageUnavailable},
	"RegistryUnavailable":       {Cause: bergv1.CauseImageUnavailable},
	"ImageInspectError":         {Cause: bergv1.CauseImageUnavailable},
	"SignatureValidationFailed": {Cause: bergv1.CauseImageUnavailable},

	"CrashLoopBackOff":          {Cause: bergv1.CauseCrashing},
	"RunContainerError":         {Cause: bergv1.CauseCrashing},
	"StartError":                {Cause: bergv1.CauseCrashing},
	"ContainerCannotRun":        {Cause: bergv1.CauseCrashing},
	"CreateContainerError":      {Cause: bergv1.CauseCrashing},
	"PostStartHookError":        {Cause: bergv1.CauseCrashing},
	Reason(corev1.PodFailed):    {Cause: bergv1.CauseCrashing},
	Reason(corev1.PodSucceeded): {Cause: bergv1.CauseCrashing},

	"FailedCreatePodSandBox":     {Cause: bergv1.CauseRefused},
	"CreateContainerConfigError": {Cause: bergv1.CauseRefused},
}

// Advise returns the advice for a reason. known is false for a reason that only Kubernetes, or a newer operator, has.
func Advise(reason Reason) (advice Advice, known bool) {
	advice, known = reasons[reason]
	return advice, known && advice.Sentence != ""
}

// IsNormal reports whether a reason belongs to every start or end, and shows no problem.
func (r Reason) IsNormal() bool {
	advice, known := reasons[r]
	return known && advice.Sentence == "" && (advice.Cause == "" || advice.Cause == bergv1.CauseNotReadyYet)
}

// FindCause returns why an instance does not run, by the condition that shows it. Reasons of Kubernetes without a row mean nothing to a
// player. The object that gives an instance its address may be late, or its API missing; one that is refused is a problem like any other.
func FindCause(condition string, reason Reason) bergv1.Cause {
	cause := reasons[reason].Cause
	switch {
	case strings.HasPrefix(string(reason), outOfPrefix):
		return bergv1.CauseNoCapacity
	case condition == bergv1.ConditionServicesCreated || condition == bergv1.ConditionRoutesCreated:
		if cause == "" || cause == bergv1.CauseNotReadyYet || reason == bergv1.ReasonAPINotInstalled {
			return bergv1.CauseAddressPending
		}
	case cause == "":
		return bergv1.CauseNotReadyYet
	}
	return cause
}

// CannotPull reports whether a container that waits for a reason cannot get its image.
func CannotPull(reason string) bool {
	return reasons[Reason(reason)].Cause == bergv1.CauseImageUnavailable
}

// FirstReason returns the reason of the first problem that the status of an instance shows, "" if there is none.
func FirstReason(i *bergv1.ChallengeInstance) Reason {
	if c := FirstProblem(i); c != nil {
		return Reason(c.Reason)
	}
	return ""
}

// FirstProblem returns the first condition of an instance that shows a problem, nil if none does. A started instance keeps running
// without its Challenge.
func FirstProblem(i *bergv1.ChallengeInstance) *metav1.Condition {
	for _, name := range bergv1.ProblemConditions {
		c := meta.FindStatusCondition(i.Status.Conditions, name)
		if c == nil || c.Status != metav1.ConditionFalse || i.Status.InstanceID != "" && c.Reason == bergv1.ReasonChallengeMissing {
			continue
		}
		return c
	}
	if c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionNamespaceDeleted); c != nil && c.Reason == bergv1.ReasonDeletionBlocked {
		return c
	}
	return nil
}
