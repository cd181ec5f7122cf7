package check

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

const (
	// cannotReach is the exit code by which a solver says that it cannot reach the instance:
	// EX_UNAVAILABLE of sysexits.h. Only the program that speaks the protocol can distinguish that
	// from an error of its own.
	cannotReach = 69
	// maxOutput is the maximum size of a solver's output in a result, in bytes.
	maxOutput = 512
	// cutMessage is from how many bytes on a termination message may be the cut end of a
	// log: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
	cutMessage = 2048
	// podRetry is the interval at which events are read while a Job has no pod. Only they say why: the status of a Job does not.
	podRetry = 10 * time.Second
)

// Assessment is the state of a check so far. One of the three is set.
type Assessment struct {
	// Result is the result of the check.
	Result *bergv1.CheckResult
	// BrokenOff is why the check says nothing about the Challenge.
	BrokenOff string
	// Stage is the reason for waiting, with its message, and Left the time until it ends.
	Stage, Message string
	Left           time.Duration
}

// ended reports whether nothing more is to be found out.
func (v Assessment) ended() bool { return v.Result != nil || v.BrokenOff != "" }

func brokenOff(format string, args ...any) Assessment {
	return Assessment{BrokenOff: fmt.Sprintf(format, args...)}
}

// assess returns the state of a check in progress. The Challenge exists. The order matters: reasons that say nothing about the
// Challenge come before results, so that no author gets a failure for a disturbance.
func assess(o Observed, now time.Time) Assessment {
	c, i, run := o.Check, o.Instance, o.Check.Status.Run
	limit := timeout(c)
	starting := run.StartedAt.Add(limit).Sub(now)
	switch {
	case run.ChallengeGeneration != o.Challenge.Generation || run.ChallengeUID != string(o.Challenge.UID):
		// The instance may be of either version, and the flag that was to be found is not known any
		// more: neither the flag nor the output of the solver can be compared with the new version.
		return brokenOff("The Challenge was changed during the check")
	case o.Players.Wait:
		return brokenOff("%s, and players go first", o.Players)
	case o.Job != nil && (i == nil || o.Job.Annotations[bergv1.CheckAnnotationInstance] != string(i.UID)),
		i != nil && i.DeletionTimestamp != nil:
		return brokenOff("The instance of the check was ended by another client")
	case i == nil && now.After(run.StartedAt.Add(lifetime(c))):
		// The instance has ended by itself, if there ever was one.
		return brokenOff("No operator ran the check in time")
	case i == nil && starting <= 0:
		return failed(bergv1.CheckNeverStarted, fmt.Sprintf("The instance could not be created within %s", limit))
	case i == nil:
		return Assessment{Stage: bergv1.ReasonStarting, Message: "The instance is being created", Left: starting}
	}

	reason, message := findCause(i)
	switch {
	case reason == bergv1.ReasonFrozen, reason == bergv1.ReasonChallengeMissing:
		return brokenOff("%s", message)
	case i.Status.Phase == bergv1.PhaseFailed:
		return failed(bergv1.CheckNeverStarted, fmt.Sprintf("The instance has failed: %s: %s", reasonText(i, reason), message))
	case reason == bergv1.ReasonQueued && starting <= 0:
		return brokenOff("The instance was still queued after %s: %s", limit, message)
	case i.Status.ReadyAt == nil && starting <= 0:
		return failed(bergv1.CheckNeverStarted, fmt.Sprintf("The instance was not Running within %s: %s: %s%s", limit, reasonText(i, reason), message, probes(o.Unready)))
	case i.Status.ReadyAt == nil:
		return Assessment{Stage: bergv1.ReasonStarting, Message: fmt.Sprintf("The instance is starting: %s", message), Left: starting}
	case o.Job == nil:
		return Assessment{Stage: bergv1.CheckReasonSolving, Message: "The solver is being started", Left: limit}
	}
	v := assessSolver(o, o.Job.CreationTimestamp.Add(limit).Sub(now))
	if v.Result != nil {
		v.Result.StartSeconds = seconds(i.Status.ReadyAt.Sub(run.StartedAt.Time))
	}
	return v
}

// probes says why running containers are not ready: a container without a readiness probe is ready
// as soon as it runs.
func probes(unready []string) string {
	switch len(unready) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; container %s runs, and its readiness probe fails", unready[0])
	default:
		return fmt.Sprintf("; containers %s run, and their readiness probes fail", strings.Join(unready, ", "))
	}
}

const podRefused = "The API server refuses the pod of the solver: "

// assessSolver returns the state of the solver, which may take that much longer.
func assessSolver(o Observed, left time.Duration) Assessment {
	limit := timeout(o.Check)
	pod := latestPod(o.Pods)
	if pod == nil {
		switch {
		case jobFailed(o.Job) != "":
			return brokenOff("The pod of the solver was deleted: %s", jobFailed(o.Job))
		case left <= 0 && o.PodRefused != "":
			return failed(bergv1.CheckSolverNotStarted, podRefused+o.PodRefused)
		case left <= 0:
			return failed(bergv1.CheckSolverNotStarted, fmt.Sprintf("No pod of the solver was created within %s, and no event of its Job says why: see the log of the cluster's controller manager", limit))
		case o.PodRefused != "":
			return Assessment{Stage: bergv1.CheckReasonSolving, Message: conditions.Bound(podRefused + o.PodRefused), Left: min(left, podRetry)}
		}
		return Assessment{Stage: bergv1.CheckReasonSolving, Message: "The pod of the solver is being created", Left: min(left, podRetry)}
	}
	// Preemption and a drained node mark the pod with this condition before they delete it.
	if disrupted(pod) {
		return brokenOff("The pod of the solver was evicted from its node: %s", cmp.Or(pod.Status.Reason, "DisruptionTarget"))
	}
	state := solverState(pod)
	switch {
	case state.Terminated != nil:
		return assessEnd(o, state.Terminated)
	case pod.Status.Phase == corev1.PodFailed:
		return failed(bergv1.CheckSolverCrashed, strings.TrimSuffix(fmt.Sprintf("The pod of the solver failed: %s: %s", cmp.Or(pod.Status.Reason, "it does not say why"), pod.Status.Message), ": "))
	case left <= 0 && state.Running != nil:
		v := failed(bergv1.CheckTooSlow, fmt.Sprintf("The solver did not end within %s", limit))
		v.Result.SolveSeconds = seconds(o.Job.CreationTimestamp.Add(limit).Sub(state.Running.StartedAt.Time))
		return v
	case left <= 0:
		return failed(bergv1.CheckSolverNotStarted, fmt.Sprintf("The solver did not start within %s: %s", limit, podProblem(pod, state)))
	case state.Running != nil:
		return Assessment{Stage: bergv1.CheckReasonSolving, Message: "The solver runs", Left: left}
	}
	return Assessment{Stage: bergv1.CheckReasonSolving, Message: "The solver is starting: " + podProblem(pod, state), Left: left}
}

// assessEnd returns the result of a solver that has ended.
func assessEnd(o Observed, end *corev1.ContainerStateTerminated) Assessment {
	flag := expected(o.Challenge, o.Instance)
	var v Assessment
	switch {
	case flag == "":
		return brokenOff("The Challenge no longer has a flag") // and every text contains nothing
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		// The message is the runtime's then, not the solver's.
		return failed(bergv1.CheckSolverNotStarted, fmt.Sprintf("The solver cannot be run: %s: %s", end.Reason, end.Message))
	case end.Reason == "OOMKilled":
		v = failed(bergv1.CheckSolverCrashed, "The solver took more memory than its limit: raise spec.solver.resourceLimits.memory")
	case end.ExitCode == cannotReach:
		v = failed(bergv1.CheckUnreachable, "The solver says, by exit code 69, that it cannot reach the instance at the addresses that players get")
	case end.ExitCode != 0:
		v = failed(bergv1.CheckSolverCrashed, fmt.Sprintf("The solver ended with exit code %d", end.ExitCode))
	// A solver may write more than the flag. An empty flag never gets here: every text would contain it.
	case strings.Contains(end.Message, flag):
		v = Assessment{Result: &bergv1.CheckResult{Result: bergv1.CheckSolved, Message: "The solver found the flag"}}
	case strings.TrimSpace(end.Message) == "":
		v = failed(bergv1.CheckWrongFlag, "The solver ended with exit code 0 and wrote nothing into the file that FLAG_FILE names")
	default:
		v = failed(bergv1.CheckWrongFlag, "The solver ended with exit code 0, and its output is not the flag of the instance")
	}
	v.Result.ExitCode = &end.ExitCode
	v.Result.SolveSeconds = seconds(end.FinishedAt.Sub(end.StartedAt.Time))
	if v.Result.Result != bergv1.CheckSolved {
		v.Result.Output = output(end.Message, o.Instance.Spec.Flag, o.Challenge.Spec.Flag)
	}
	return v
}

// unreached reports whether the solver may not have reached the instance, or may have reached another one. Most
// programs crash at an answer that they do not expect, and some wait for one that never comes.
func (v Assessment) unreached() bool {
	if v.Result == nil {
		return false
	}
	switch v.Result.Result {
	case bergv1.CheckUnreachable, bergv1.CheckWrongFlag, bergv1.CheckSolverCrashed, bergv1.CheckTooSlow:
		return true
	case bergv1.CheckSolved, bergv1.CheckNeverStarted, bergv1.CheckSolverNotStarted, bergv1.CheckRefused:
	}
	return false
}

// add appends further problems to the message.
func (v Assessment) add(problems []string) {
	v.Result.Message = conditions.Bound(strings.Join(append([]string{v.Result.Message}, problems...), "; "))
}

func failed(result bergv1.CheckResultType, message string) Assessment {
	return Assessment{Result: &bergv1.CheckResult{Result: result, Message: conditions.Bound(message)}}
}

// anyFlag matches the form of a flag. A solver that was led to another instance returns the flag of
// that one.
var anyFlag = regexp.MustCompile(`[0-9A-Za-z_-]+\{[^{}\s]+\}`)

// output returns the end of a solver's output, without flags. If the text may have been cut, its
// first line is removed too: it could contain half a flag, which is not recognised. The order matters: the flag is removed before
// the text is cut, since half a flag would not be recognised.
func output(text string, flags ...string) string {
	if len(text) >= cutMessage {
		_, text, _ = strings.Cut(text, "\n")
	}
	for _, flag := range flags {
		text = redact.Text(text, flag)
	}
	text = anyFlag.ReplaceAllString(text, "<flag>")
	text = strings.TrimSpace(strings.ToValidUTF8(text, string(utf8.RuneError)))
	from := max(0, len(text)-maxOutput)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}

func seconds(d time.Duration) *int64 {
	s := max(0, int64(d.Round(time.Second).Seconds()))
	return &s
}

// latestPod is the pod of a solver: a Job may make another one of one that was deleted.
func latestPod(pods []corev1.Pod) *corev1.Pod {
	if len(pods) == 0 {
		return nil
	}
	newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &newest
}

// solverState returns the state of the solver's container.
func solverState(pod *corev1.Pod) corev1.ContainerState {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == containerName {
			return s.State
		}
	}
	return corev1.ContainerState{}
}

// disrupted reports whether a pod failed for reasons that are not its own.
func disrupted(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// podProblem says why a solver does not run yet.
func podProblem(pod *corev1.Pod, state corev1.ContainerState) string {
	if w := state.Waiting; w != nil && w.Reason != "" {
		return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
		}
	}
	return "its pod is " + cmp.Or(string(pod.Status.Phase), string(corev1.PodPending))
}

// jobFailed returns why a Job has failed, "" if it has not.
func jobFailed(j *batchv1.Job) string {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
		}
	}
	return ""
}
