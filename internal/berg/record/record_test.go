package record

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

var keptForADay = config.Record{Retention: 24 * time.Hour, Namespace: "berg-records", Limit: 10}

func minute(minutes int) metav1.Time {
	return metav1.Time{Time: noon.Add(time.Duration(minutes) * time.Minute)}
}

func when(minutes int) *metav1.Time {
	t := minute(minutes)
	return &t
}

// ending returns an instance that ran for two hours and has expired.
func ending(modify ...func(*challengeinstance.Ending)) challengeinstance.Ending {
	e := challengeinstance.Ending{
		Instance: &bergv1.ChallengeInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "alice-web", UID: "uid-1", CreationTimestamp: minute(-1), DeletionTimestamp: when(121)},
			Spec:       bergv1.ChallengeInstanceSpec{OwnerID: "00000000-0000-0000-0000-000000000001", Flag: secretFlag, ChallengeRef: bergv1.ChallengeReference{Name: "web"}},
			Status: bergv1.ChallengeInstanceStatus{
				InstanceID: "id-1", Phase: bergv1.PhaseRunning, StartedAt: when(0), ReadyAt: when(1), ChallengeGeneration: 3,
				Conditions: []metav1.Condition{
					{Type: bergv1.ConditionPodsReady, Status: metav1.ConditionTrue, Reason: bergv1.ReasonReady},
					{Type: bergv1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: bergv1.ReasonChallengeChanged},
				},
			},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "challenge-1", CreationTimestamp: minute(0)}},
		Reason:    bergv1.EndReason(bergv1.TerminationTimeout),
		Challenge: bergv1.ChallengeReference{Namespace: "berg", Name: "web"},
		ExpiresAt: when(120),
	}
	for _, m := range modify {
		m(&e)
	}
	return e
}

func podOf(name string, statuses ...corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{bergv1.LabelContainer: "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: statuses},
	}
}

var (
	runs    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: minute(1)}}
	crashed = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 139, Reason: "Error", Message: "panic: " + secretFlag, StartedAt: minute(100), FinishedAt: minute(101),
	}}
	backsOff = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}}
)

func TestRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		ending challengeinstance.Ending
		seen   Seen
	}{
		"expired": {ending(), Seen{
			Pods: []corev1.Pod{podOf("web-1", corev1.ContainerStatus{Name: "web", Ready: true, State: runs})},
			Logs: map[LogKey]Log{{"web-1", "web"}: {Raw: []byte("listening\nsomebody sent " + secretFlag + "\n")}},
		}},
		"crashes again and again": {
			ending(func(e *challengeinstance.Ending) {
				e.Reason = bergv1.EndReason(bergv1.TerminationUserRequest)
				e.Instance.Status.Conditions = append(e.Instance.Status.Conditions, metav1.Condition{
					Type: bergv1.ConditionHealthy, Status: metav1.ConditionFalse, Reason: "CrashLoopBackOff",
					Message: "web: exited with 139: " + secretFlag, LastTransitionTime: minute(101),
				})
			}), Seen{
				Pods: []corev1.Pod{
					podOf("web-2", corev1.ContainerStatus{Name: "web", RestartCount: 3, State: backsOff, LastTerminationState: crashed}),
					podOf("db-1", corev1.ContainerStatus{Name: "db", RestartCount: 1, State: runs, LastTerminationState: crashed, Ready: true}),
				},
				Logs: map[LogKey]Log{
					{"web-2", "web"}: {Raw: []byte("}\nsegmentation fault\n"), Cut: true},
					{"db-1", "db"}:   {Raw: []byte("ready\n"), Before: []byte("out of memory"), BeforeCut: true},
				},
			},
		},
		"never started": {
			ending(func(e *challengeinstance.Ending) {
				e.Namespace, e.ExpiresAt = nil, nil
				e.Reason = bergv1.EndReason(bergv1.TerminationAdmin)
				e.Instance.Status = bergv1.ChallengeInstanceStatus{Phase: bergv1.PhaseFailed, Conditions: []metav1.Condition{
					{Type: bergv1.ConditionChallengeFound, Status: metav1.ConditionFalse, Reason: bergv1.ReasonChallengeMissing, Message: "Challenge web not found", LastTransitionTime: minute(0)},
				}}
			}), Seen{},
		},
		"found again after a restart": {
			ending(func(e *challengeinstance.Ending) {
				e.Namespace.DeletionTimestamp = when(121)
				e.Reason = bergv1.EndChallengeDeleted
				e.Instance.Status.Phase = bergv1.PhaseTerminating
				e.Instance.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionHealthy, Status: metav1.ConditionFalse, Reason: bergv1.ReasonTerminating}}
			}), Seen{
				Pods: []corev1.Pod{{
					ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{bergv1.LabelContainer: "web"}},
					Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
						{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"},
					}},
				}},
				Incomplete: late,
			},
		},
		"logs that cannot be read": {ending(), Seen{
			Pods: []corev1.Pod{podOf("web-1", corev1.ContainerStatus{Name: "web", State: runs})},
			Logs: map[LogKey]Log{{"web-1", "web"}: {Missing: "It could not be read: there was no answer within 2s"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := compose(tc.ending, tc.seen, keptForADay, noon.Add(121*time.Minute))
			text, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "alice?") || strings.Contains(string(text), "0nly") {
				t.Errorf("the flag is in it:\n%s", text)
			}
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden.yaml")
			if *update {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(text)); diff != "" {
				t.Errorf("%s, or go test -update:\n%s", file, diff)
			}
		})
	}
}

// A record fits, no matter how much containers write and how many there are.
func TestRecordsFit(t *testing.T) {
	for name, text := range map[string]string{
		"letters":  strings.Repeat("a", MaxLog),
		"quotes":   strings.Repeat(`"<&>`, MaxLog/4),
		"commands": strings.Repeat("\x1b", MaxLog),
		"a line":   strings.Repeat("é\n", MaxLog/3),
	} {
		for _, n := range []int{1, 12, 70} {
			seen := Seen{Logs: map[LogKey]Log{}}
			for i := range n {
				p := podOf("web-"+strings.Repeat("x", i), corev1.ContainerStatus{Name: "web", RestartCount: 1, State: runs})
				seen.Pods = append(seen.Pods, p)
				seen.Logs[LogKey{p.Name, "web"}] = Log{Raw: []byte(text), Cut: true}
			}
			r := compose(ending(), seen, keptForADay, noon)
			if size := recordSize(r.Spec); size > maxRecord || sizeAsWritten(partialMetadata(r)) != int64(size) {
				t.Errorf("%s of %d: %d bytes, and it says %d", name, n, size, sizeAsWritten(partialMetadata(r)))
			}
			if want := min(n, maxContainers); len(r.Spec.Containers) != want || (n > want) != (r.Spec.Incomplete != "") {
				t.Errorf("%s of %d: %d containers, %q", name, n, len(r.Spec.Containers), r.Spec.Incomplete)
			}
			for _, c := range r.Spec.Containers {
				if c.Log == "" || len(c.Log) > MaxLog || !c.LogCut {
					t.Errorf("%s of %d: a log of %d bytes, cut %t", name, n, len(c.Log), c.LogCut)
				}
			}
		}
	}
}

func TestShortFlagKeepsLogsOut(t *testing.T) {
	e := ending(func(e *challengeinstance.Ending) { e.Instance.Spec.Flag = "abc" })
	seen := Seen{
		Pods: []corev1.Pod{podOf("web-1", corev1.ContainerStatus{Name: "web", State: runs})},
		Logs: map[LogKey]Log{{"web-1", "web"}: {Raw: []byte("abc")}},
	}
	if c := compose(e, seen, keptForADay, noon).Spec.Containers[0]; c.Log != "" || c.LogMissing == "" {
		t.Errorf("%+v", c)
	}
	// So it is with what the program said at its end, and with what its instance says.
	seen.Pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", Message: "it was abc"}}
	e.Instance.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionHealthy, Status: metav1.ConditionFalse, Reason: "Crashing", Message: "abc is no command"}}
	r := compose(e, seen, keptForADay, noon)
	if c := r.Spec.Containers[0]; c.Message != "" || c.Exit == nil || c.Exit.Reason != "Error" {
		t.Errorf("%+v", c)
	}
	if p := r.Spec.Problem; p == nil || p.Message != "" || p.Reason != "Crashing" {
		t.Errorf("%+v", p)
	}
	// One of the Challenge counts, too.
	e = ending(func(e *challengeinstance.Ending) { e.StaticFlags = []string{"static_flag"} })
	seen.Logs[LogKey{"web-1", "web"}] = Log{Raw: []byte("it is static_flag")}
	if c := compose(e, seen, keptForADay, noon).Spec.Containers[0]; c.Log != "it is <flag>" {
		t.Errorf("%+v", c)
	}
}

// A flag of the Challenge that was changed after the start is known to the containers alone.
func TestNothingIsKeptWhereAFlagWasLost(t *testing.T) {
	seen := Seen{
		Pods: []corev1.Pod{podOf("web-1", corev1.ContainerStatus{Name: "web", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", Message: "it was old_flag"}}})},
		Logs: map[LogKey]Log{{"web-1", "web"}: {Raw: []byte("it is old_flag")}},
	}
	e := ending(func(e *challengeinstance.Ending) { e.StaticFlags, e.FlagLost = []string{"new_flag"}, true })
	if c := compose(e, seen, keptForADay, noon).Spec.Containers[0]; c.Log != "" || c.Message != "" || !strings.Contains(c.LogMissing, "changed or deleted") || c.Exit.Reason != "Error" {
		t.Errorf("%+v", c)
	}
	e.FlagLost = false
	if c := compose(e, seen, keptForADay, noon).Spec.Containers[0]; c.Log == "" {
		t.Errorf("of a Challenge that did not change: %+v", c)
	}
}

func TestWithoutLogs(t *testing.T) {
	seen := Seen{
		Pods: []corev1.Pod{podOf("web-1", corev1.ContainerStatus{Name: "web", State: runs})},
		Logs: map[LogKey]Log{{"web-1", "web"}: {Raw: []byte(strings.Repeat("x", 5000))}},
	}
	r := compose(ending(), seen, keptForADay, noon)
	before := sizeAsWritten(partialMetadata(r))
	withoutLogs(r, "no room")
	if c := r.Spec.Containers[0]; c.Log != "" || c.LogMissing != "no room" || sizeAsWritten(partialMetadata(r)) > before-4900 {
		t.Errorf("%+v, %d bytes of %d", c, sizeAsWritten(partialMetadata(r)), before)
	}
}

func TestLogsOfWhatRan(t *testing.T) {
	pods := []corev1.Pod{
		podOf("a", corev1.ContainerStatus{Name: "runs", State: runs}, corev1.ContainerStatus{Name: "again", State: runs, LastTerminationState: crashed}),
		podOf("b", corev1.ContainerStatus{Name: "crashed", State: crashed}, corev1.ContainerStatus{Name: "waits", State: backsOff, LastTerminationState: crashed}),
		podOf("c", corev1.ContainerStatus{Name: "never", State: backsOff}),
	}
	want := []wantedLog{{LogKey{"a", "runs"}, false}, {LogKey{"a", "again"}, true}, {LogKey{"b", "crashed"}, false}, {LogKey{"b", "waits"}, false}}
	if diff := cmp.Diff(want, wantedLogs(pods), cmp.AllowUnexported(wantedLog{})); diff != "" {
		t.Error(diff)
	}
}

func TestWhatWasWrong(t *testing.T) {
	of := func(all ...metav1.Condition) *bergv1.RecordedProblem {
		return recordedProblem(&bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{Conditions: all}}, newCensor(secretFlag))
	}
	is := func(conditionType string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: "Some", Message: "with " + secretFlag}
	}
	if got := of(is("ChallengeFound", "True"), is("UpToDate", "False"), is("NamespaceDeleted", "False")); got != nil {
		t.Errorf("%+v where all is well", got)
	}
	if got := of(is("PodsReady", "Unknown"), is("Healthy", "False")); got == nil || got.Condition != "Healthy" || got.Message != "with <flag>" {
		t.Errorf("%+v, not what was False", got)
	}
	if got := of(is("ChallengeFound", "True"), is("PodsReady", "Unknown")); got == nil || got.Condition != "PodsReady" {
		t.Errorf("%+v while it was starting", got)
	}
}
