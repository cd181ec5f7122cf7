package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ChallengeCheck lets a program of the author solve a Challenge repeatedly: the operator starts an
// instance with a secret flag, runs the solver outside the instance, compares the solver's report
// with the flag, and ends the instance. Only an operator with CHECK_CONCURRENCY above 0 reconciles
// ChallengeChecks.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=ccheck
// +kubebuilder:printcolumn:name="Challenge",type=string,JSONPath=`.spec.challengeRef.name`
// +kubebuilder:printcolumn:name="Solvable",type=string,JSONPath=`.status.conditions[?(@.type=="Solvable")].status`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.status.lastResult.result`
// +kubebuilder:printcolumn:name="Checked",type=date,JSONPath=`.status.lastResult.finishedAt`
// +kubebuilder:printcolumn:name="Now",type=string,JSONPath=`.status.conditions[?(@.type=="Running")].reason`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextRunAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:selectablefield:JSONPath=`.spec.challengeRef.name`
// +operator-sdk:csv:customresourcedefinitions:displayName="Challenge Check",order=3,resources={{Challenge,v1,""},{ChallengeInstance,v1,""},{Namespace,v1,""},{Job,v1,""},{Secret,v1,""},{Pod,v1,""},{CiliumNetworkPolicy,v2,""},{NetworkPolicy,v1,""},{Event,v1,""}}
type ChallengeCheck struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which Challenge is checked, by which program, and when.
	//
	// +required
	Spec ChallengeCheckSpec `json:"spec"`

	// Results of the checks, and progress of the current one. Written by the operator alone.
	//
	// +optional
	// +kubebuilder:default={}
	Status ChallengeCheckStatus `json:"status,omitempty"`
}

// ChallengeCheckList is a list of ChallengeChecks.
//
// +kubebuilder:object:root=true
type ChallengeCheckList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ChallengeCheck `json:"items"`
}

// ChallengeCheckSpec says which Challenge is checked, by which program, and when.
//
// +kubebuilder:validation:XValidation:rule="self.challengeRef == oldSelf.challengeRef",message="challengeRef cannot be changed: delete this check and create another one",fieldPath=".challengeRef"
type ChallengeCheckSpec struct {
	// The Challenge to check, for example {name: guestbook}. Cannot be changed.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Challenge"
	ChallengeRef ChallengeReference `json:"challengeRef"`

	// The program that solves the Challenge.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Solver"
	Solver Solver `json:"solver"`

	// When the Challenge is checked. A check is always made when the ChallengeCheck is
	// created, and when it or its Challenge has changed. Default: at no other time.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Schedule"
	Schedule CheckSchedule `json:"schedule,omitempty"`

	// How long the instance may take until it is Running, and then the solver until it
	// ends: each of them, for example 90s or 5m, from 10s to 1h. Default: 5m.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$')`,message="timeout must be whole hours, minutes and seconds in this order, for example 90s or 5m"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$') || duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="timeout must be from 10s to 1h, for example 5m"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Timeout"
	Timeout string `json:"timeout,omitempty"`

	// Whether no further check is started. A check that has started is completed. Default: false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Suspend",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	Suspend bool `json:"suspend,omitempty"`

	// How many results status.history keeps, from 1 to 10. Default: 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="History Limit",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:podCount"}
	HistoryLimit int32 `json:"historyLimit,omitempty"`
}

// Solver is a program that plays a Challenge as a player would. It runs without rights, as
// user 65532, in a namespace of its own. Environment variables have the addresses of the
// instance's ports. It writes the flag into the file that FLAG_FILE names; other text
// may surround it. It exits with 0 when it has got a flag, with 69 when it cannot reach
// the instance, and with anything else when it failed.
type Solver struct {
	// Image of the solver, for example registry.example.com/solvers/guestbook:v1. A private one is
	// pulled with the operator's PULL_SECRET_NAME, like the images of challenges.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image"
	Image string `json:"image"`

	// Command and its arguments, for example [sh, -c, "python3 solve.py > $FLAG_FILE"]. Default: the
	// command of the image.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Command"
	Command []string `json:"command,omitempty"`

	// Further environment variables. For each port that is not internal there are <NAME>_ENDPOINT
	// (HOST:PORT), <NAME>_HOST, <NAME>_PORT and <NAME>_URL, which replace variables of the same name
	// here: <NAME> is the port's name in status.services of the instance, in upper case, with _ for
	// all but A-Z and 0-9.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Environment"
	Env []SolverVariable `json:"env,omitempty"`

	// Resources reserved for the solver. Default: the operator's CHALLENGE_CPU_REQUEST and
	// CHALLENGE_MEMORY_REQUEST, or the limit if that is smaller.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource Requests"
	ResourceRequests *Resources `json:"resourceRequests,omitempty"`

	// Maximum resources of the solver. Default: the operator's CHALLENGE_CPU_LIMIT and
	// CHALLENGE_MEMORY_LIMIT.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource Limits"
	ResourceLimits *Resources `json:"resourceLimits,omitempty"`

	// RuntimeClass of the solver's pod. Default: the cluster's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Runtime Class Name"
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
}

// SolverVariable is an environment variable of a solver.
type SolverVariable struct {
	// Name of the variable, for example LEVEL.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z_][A-Za-z0-9_]*$')`,message="name of a variable must have only letters, digits and underscores, and not begin with a digit, for example LEVEL"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Name"
	Name string `json:"name"`

	// Its value. Everyone who may read the ChallengeCheck sees it: put no secret here. Default: empty.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Value"
	Value string `json:"value,omitempty"`
}

// CheckSchedule says when a Challenge is checked although nothing was changed.
type CheckSchedule struct {
	// Time between the starts of two checks, for example 30m or 6h, from 1m to 9999h. Default: empty,
	// no check is made because time passes.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$')`,message="schedule.every must be whole hours, minutes and seconds in this order, for example 30m or 6h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$') || duration(self) >= duration('1m')",message="schedule.every must be 1m or more, for example 30m"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Every"
	Every string `json:"every,omitempty"`

	// How long before the hideUntil of the Challenge it is checked once more, for example
	// 1h: time to correct it before players see it. Default: empty, not for that reason.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$')`,message="schedule.beforeHideUntil must be whole hours, minutes and seconds in this order, for example 1h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$') || duration(self) >= duration('1m')",message="schedule.beforeHideUntil must be 1m or more, for example 1h"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Before Hide Until"
	BeforeHideUntil string `json:"beforeHideUntil,omitempty"`
}

// ChallengeCheckStatus holds the results of the checks of a Challenge.
type ChallengeCheckStatus struct {
	// Whether the Challenge can be solved (Solvable), and whether a check is being made and
	// if not, why (Running).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The check that is being made, from before its instance is created until all that
	// belongs to it is gone. Empty: none is.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Run"
	Run *CheckRun `json:"run,omitempty"`

	// UID of the namespace of the solver, since the operator created it. A namespace of the same name with another UID
	// is not the check's, also with the same labels and annotations: nothing is written in it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace UID",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`

	// SHA-256 of a random value that only the operator knows until it creates the namespace, which has that value as an
	// annotation. It identifies the namespace until namespaceUID is known.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Namespace Token Hash",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:hidden"}
	NamespaceTokenHash string `json:"namespaceTokenHash,omitempty"`

	// The result of the last completed check.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Last Result"
	LastResult *CheckResult `json:"lastResult,omitempty"`

	// The results of the last ten checks, or as many as spec.historyLimit says, the last one first,
	// without the output of their solvers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="History"
	History []CheckResult `json:"history,omitempty"`

	// When the next check is due. It may have to wait: the condition Running says why. Empty: none is
	// due because time passes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Next Run At"
	NextRunAt *metav1.Time `json:"nextRunAt,omitempty"`

	// After a check that was interrupted: when it is made again at the earliest.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Retry At"
	RetryAt *metav1.Time `json:"retryAt,omitempty"`

	// metadata.generation that this status describes. If it is lower than the generation of the
	// resource, the operator has not seen the latest change yet.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed Generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CheckRun is a check that is being made.
type CheckRun struct {
	// When the operator started the check, before it created any object.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Started At"
	StartedAt metav1.Time `json:"startedAt"`

	// When its result was known, or it was interrupted: from then on its objects are deleted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Finished At"
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// metadata.generation of the ChallengeCheck when the check started.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Generation"
	Generation int64 `json:"generation,omitempty"`

	// metadata.generation of the Challenge when the check started.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Challenge Generation"
	ChallengeGeneration int64 `json:"challengeGeneration,omitempty"`

	// metadata.uid of the Challenge when the check started.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Challenge UID"
	ChallengeUID string `json:"challengeUID,omitempty"`
}

// CheckResult is the result of one check.
type CheckResult struct {
	// The run that it is the result of.
	CheckRun `json:",inline"`

	// Solved, or the failure. NeverStarted: the instance did not become Running; SolverNotStarted: the
	// solver's pod did not run; Unreachable: the solver says that it cannot reach the instance;
	// WrongFlag: it ended well without the flag; SolverCrashed: it failed; TooSlow: it did not end
	// within the timeout; Refused: the API server refused an object of the check.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Result"
	Result CheckResultType `json:"result"`

	// Why, in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message"
	Message string `json:"message,omitempty"`

	// Seconds until the instance was Running. Empty if it never was.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Start Seconds"
	StartSeconds *int64 `json:"startSeconds,omitempty"`

	// Seconds that the solver ran. Empty if it never ended.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Solve Seconds"
	SolveSeconds *int64 `json:"solveSeconds,omitempty"`

	// Exit code of the solver. Empty if it never ended.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Exit Code"
	ExitCode *int32 `json:"exitCode,omitempty"`

	// The end of the solver's output, without flags, when it was not Solved.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Output"
	Output string `json:"output,omitempty"`
}

// CheckResultType is a result in a word.
//
// +kubebuilder:validation:Enum=Solved;NeverStarted;SolverNotStarted;Unreachable;WrongFlag;SolverCrashed;TooSlow;Refused
type CheckResultType string

// The results of a check. Each is also the reason of the condition Solvable and of the event
// that reports it.
const (
	// CheckSolved: the solver found the flag.
	CheckSolved CheckResultType = "Solved"
	// CheckNeverStarted: the instance was not Running within spec.timeout.
	CheckNeverStarted CheckResultType = "NeverStarted"
	// CheckSolverNotStarted: the pod of the solver did not run.
	CheckSolverNotStarted CheckResultType = "SolverNotStarted"
	// CheckUnreachable: the solver says, by its exit code 69, that it cannot reach the instance.
	CheckUnreachable CheckResultType = "Unreachable"
	// CheckWrongFlag: the solver ended with exit code 0 and without the flag of the instance.
	CheckWrongFlag CheckResultType = "WrongFlag"
	// CheckSolverCrashed: the solver ended with another exit code, or its pod failed.
	CheckSolverCrashed CheckResultType = "SolverCrashed"
	// CheckTooSlow: the solver did not end in its time.
	CheckTooSlow CheckResultType = "TooSlow"
	// CheckRefused: the API server refuses an object of the check, or another owner has its name.
	CheckRefused CheckResultType = "Refused"
)

// CheckResultTypes lists every result.
var CheckResultTypes = []CheckResultType{
	CheckSolved, CheckNeverStarted, CheckSolverNotStarted, CheckUnreachable, CheckWrongFlag, CheckSolverCrashed, CheckTooSlow, CheckRefused,
}

// The conditions of a check.
const (
	// CheckConditionSolvable: the last check solved the Challenge.
	CheckConditionSolvable = "Solvable"
	// CheckConditionRunning: a check is running.
	CheckConditionRunning = "Running"
)

// A ChallengeCheck also has the conditions Ready, which is as Solvable, and Stalled: True while the last check did not
// solve the Challenge.

// The reasons of the condition Running, and of a Solvable that is not known, in addition to
// ReasonStarting, ReasonChallengeMissing and ReasonFrozen.
const (
	// CheckReasonNotChecked: no check has ended yet.
	CheckReasonNotChecked = "NotChecked"
	// CheckReasonSolving: the solver runs.
	CheckReasonSolving = "Solving"
	// CheckReasonEnding: the objects of a check are being deleted.
	CheckReasonEnding = "Ending"
	// CheckReasonIdle: the next check is due later, or after a change.
	CheckReasonIdle = "Idle"
	// CheckReasonSuspended: spec.suspend is set.
	CheckReasonSuspended = "Suspended"
	// CheckReasonQueued: other checks run, or go first. CHECK_CONCURRENCY limits how many run.
	CheckReasonQueued = "Queued"
	// CheckReasonPlayersFirst: players wait, and go first.
	CheckReasonPlayersFirst = "PlayersFirst"
	// CheckReasonNoFlag: the Challenge has no flag to find.
	CheckReasonNoFlag = "NoFlag"
	// CheckReasonInterrupted: the check was broken off without a result, and is made again.
	CheckReasonInterrupted = "Interrupted"
)

// CheckFinalizer keeps a ChallengeCheck while a check is being made, until all that belongs to
// it is gone.
const CheckFinalizer = "challengecheck.berg.norelect.ch/finalizer"

// The labels and annotations of the objects of a check, in addition to the labels and annotations of every object.
const (
	// LabelCheck on an instance: the name of the ChallengeCheck that it was made for.
	LabelCheck = "berg.norelect.ch/check"
	// CheckAnnotation on the namespace of a solver names the ChallengeCheck as <namespace>/<name>.
	CheckAnnotation = "berg.norelect.ch/check"
	// CheckAnnotationInstance on a Job is the UID of the instance that it was made for.
	CheckAnnotationInstance = "berg.norelect.ch/checked-instance"

	// ComponentCheck is the value of LabelComponent on the namespace of a solver and the objects in it.
	ComponentCheck = "challenge-check"
	// ComponentSolver is the value of LabelComponent on a solver's pod.
	ComponentSolver = "challenge-solver"
)
