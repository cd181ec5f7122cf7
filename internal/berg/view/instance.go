package view

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// State is how far an instance is, for organisers and platforms.
type State string

// The states of an instance.
const (
	Running  State = "running"
	Starting State = "starting"
	Waiting  State = "waiting"
	Failed   State = "failed"
	Ending   State = "ending"
)

// States lists every state in the order in which they are counted.
var States = []State{Running, Starting, Waiting, Failed, Ending}

// Row is an instance as organisers see it. It has no field for a flag.
type Row struct {
	UID       types.UID `json:"-"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Challenge string    `json:"challenge"`
	// ChallengeNamespace is "" for the operator's default.
	ChallengeNamespace string `json:"-"`
	Owner              string `json:"owner"`
	// Source is the user or team of a platform.
	Source string       `json:"source,omitempty"`
	Phase  bergv1.Phase `json:"phase"`
	State  State        `json:"state"`
	// Reason of the first condition that shows a problem, "" if none does.
	Reason Reason `json:"problem,omitempty"`
	// Cause is the reason as players see it, "" while the instance runs.
	Cause bergv1.Cause `json:"cause,omitempty"`
	// Sentence says for organisers why it does not run well, "" if it does.
	Sentence string `json:"-"`
	// NeedsPerson: the problem stays until a person acts.
	NeedsPerson bool `json:"-"`
	// Prepared: it has no player yet, and so no owner, source or expiry.
	Prepared bool `json:"prepared,omitempty"`
	// UsesCapacity: the operator has started it, so that it has objects in the cluster.
	UsesCapacity bool      `json:"-"`
	Created      time.Time `json:"createdAt,omitzero"`
	// Started, Ready and Expires are zero before it has started or run, or if it never ends; Deleted while it lives.
	Started     time.Time                `json:"startedAt,omitzero"`
	Ready       time.Time                `json:"-"`
	Expires     time.Time                `json:"expiresAt,omitzero"`
	Deleted     time.Time                `json:"-"`
	Frozen      bool                     `json:"frozen,omitempty"`
	Outdated    bool                     `json:"outdated,omitempty"`
	InNamespace string                   `json:"instanceNamespace,omitempty"`
	Services    []bergv1.ServiceEndpoint `json:"services,omitempty"`
	// Stages of the start, in their order.
	Stages []Stage `json:"-"`
	// Conditions as the operator wrote them.
	Conditions []metav1.Condition `json:"-"`
	problem    string             // type of the condition that shows the problem
}

// NewRow returns an instance as organisers see it. It reads the instance alone, and keeps parts of it: the instance must not be
// changed afterwards.
func NewRow(i *bergv1.ChallengeInstance) Row {
	r := Row{
		UID: i.UID, Namespace: i.Namespace, Name: i.Name, Challenge: i.Spec.ChallengeRef.Name, ChallengeNamespace: i.Spec.ChallengeRef.Namespace,
		Owner: i.Spec.OwnerID, Source: i.Labels[bergv1.LabelSource],
		Phase: cmp.Or(i.Status.Phase, bergv1.PhasePending), State: findState(i), Cause: i.Status.Cause, Created: i.CreationTimestamp.UTC(),
		Started: timeIfSet(i.Status.StartedAt), Ready: timeIfSet(i.Status.ReadyAt), Expires: timeIfSet(i.Status.ExpiresAt),
		Frozen: IsFrozen(i), Outdated: meta.IsStatusConditionFalse(i.Status.Conditions, bergv1.ConditionUpToDate),
		InNamespace: i.Status.Namespace, Services: i.Status.Services, Stages: Stages(i), Conditions: i.Status.Conditions,
		UsesCapacity: i.Status.StartedAt != nil, Deleted: timeIfSet(i.DeletionTimestamp),
	}
	if IsPrepared(i) {
		// A claimed one has handed its objects over to the instance of the player.
		r.Prepared, r.Owner, r.UsesCapacity = true, "", i.Status.InstanceID != "" && i.Status.ClaimedBy == nil
	}
	problem := FirstProblem(i)
	if problem != nil {
		r.Reason, r.problem = Reason(problem.Reason), problem.Type
	}
	cause := r.diagnosis()
	r.NeedsPerson = r.State == Failed || Explain(cause).NeedsPerson || r.State == Running && r.problem == bergv1.ConditionHealthy
	if cause == "" {
		return r
	}
	r.Sentence = Explain(cause).Organisers
	if r.problem == bergv1.ConditionHealthy && cause == bergv1.CauseNotReadyYet {
		r.Sentence = "It was ready, and is not ready now."
	}
	switch r.Reason {
	case bergv1.ReasonGatewayNotReady, bergv1.ReasonRouteRefused, bergv1.ReasonPodUnreached, bergv1.ReasonServiceMissing, bergv1.ReasonOutOfNodePorts, bergv1.ReasonOutOfAddresses:
		r.Sentence = reasons[r.Reason].Sentence // more precise than the cause
	}
	if problem != nil && problem.Message != "" && problem.Message != r.Sentence {
		r.Sentence += " " + problem.Message
	}
	return r
}

// diagnosis returns the cause of the problem. An instance that runs, or is being deleted, has no cause, but may have a
// problem.
func (r *Row) diagnosis() bergv1.Cause {
	if r.State == Running && r.problem == "" || r.State == Ending && r.Reason != bergv1.ReasonDeletionBlocked {
		return ""
	}
	return cmp.Or(r.Cause, FindCause(r.problem, r.Reason))
}

// ID is the namespace and the name.
func (r *Row) ID() string { return JoinID(r.Namespace, r.Name) }

// JoinID returns the ID of the instance of a name.
func JoinID(namespace, name string) string { return namespace + "/" + name }

// ChallengeID is the ID of its Challenge. home is the namespace of Challenges that are named without one; "": the namespace
// of the instance.
func (r *Row) ChallengeID(home string) string {
	return JoinID(cmp.Or(r.ChallengeNamespace, home, r.Namespace), r.Challenge)
}

// Player is the user or team of a platform, or the owner.
func (r *Row) Player() string { return cmp.Or(r.Source, r.Owner) }

// Addresses at which players reach it.
func (r *Row) Addresses() (all []string) {
	for _, s := range r.Services {
		if s.Hostname != "" {
			all = append(all, Address(s))
		}
	}
	return all
}

// Address returns the URL of an endpoint, or its host name and port.
func Address(s bergv1.ServiceEndpoint) string {
	return cmp.Or(s.URL, fmt.Sprintf("%s:%d", s.Hostname, s.Port))
}

// IsPrepared reports whether an instance has no player yet. The label alone does not decide, because platforms can set it: the
// operator sets startedAt of each instance that it starts for a player.
func IsPrepared(i *bergv1.ChallengeInstance) bool {
	return i.Labels[bergv1.LabelPrepared] != "" && i.Status.StartedAt == nil
}

// IsEnding reports whether an instance is being deleted, or is about to be.
func IsEnding(i *bergv1.ChallengeInstance) bool {
	return i.DeletionTimestamp != nil || i.Spec.TerminationReason != ""
}

// IsFrozen reports whether an instance does not expire, or a Challenge starts no instance.
func IsFrozen(o metav1.Object) bool { return o.GetAnnotations()[bergv1.AnnotationFrozen] != "" }

// IsHealthy reports whether the status alone shows that there is no problem, as it does for most of thousands of instances.
func IsHealthy(i *bergv1.ChallengeInstance) bool {
	return i.Status.Phase == bergv1.PhaseRunning && FirstProblem(i) == nil && i.DeletionTimestamp == nil
}

// findState returns the state of an instance. A deletion counts before the phase, because the operator writes the phase
// later.
func findState(i *bergv1.ChallengeInstance) State {
	switch {
	case IsEnding(i):
		return Ending
	case i.Status.Phase == bergv1.PhaseRunning:
		return Running
	case i.Status.Phase == bergv1.PhaseFailed:
		return Failed
	case Explain(i.Status.Cause).Waits:
		return Waiting
	default:
		return Starting
	}
}

func timeIfSet(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
