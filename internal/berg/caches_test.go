package berg

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/config"
)

// An operator that makes no checks keeps nothing of them, and one that does nothing else.
func TestCachesOfChecks(t *testing.T) {
	for concurrency, wanted := range map[int]bool{0: false, 1: true} {
		options := caches(config.Berg{Check: config.Check{Concurrency: concurrency}})
		kept := false
		for kind, by := range options.ByObject {
			switch kind.(type) {
			case *bergv1.ChallengeCheck:
				kept = true
			case *corev1.Pod:
				for component, want := range map[string]bool{bergv1.ComponentPod: true, bergv1.ComponentSolver: wanted, "isolation-check": false} {
					if got := by.Label.Matches(labels.Set{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: component}); got != want {
						t.Errorf("CHECK_CONCURRENCY=%d: pods that are %s: %v", concurrency, component, got)
					}
				}
				if by.Label.Matches(labels.Set{bergv1.LabelComponent: bergv1.ComponentPod}) {
					t.Errorf("CHECK_CONCURRENCY=%d: pods of others", concurrency)
				}
			}
		}
		if kept != wanted {
			t.Errorf("CHECK_CONCURRENCY=%d: ChallengeChecks are kept: %v", concurrency, kept)
		}
	}
}

// An operator that keeps no records watches none, and one that does watches those of one namespace,
// and of them the metadata.
func TestCachesOfRecords(t *testing.T) {
	for retention, wanted := range map[time.Duration]bool{0: false, time.Hour: true} {
		kept := false
		for kind, by := range caches(config.Berg{Record: config.Record{Retention: retention, Namespace: "records"}}).ByObject {
			switch o := kind.(type) {
			case *bergv1.ChallengeInstanceRecord:
				t.Errorf("RECORD_RETENTION=%s: whole records are kept", retention)
			case *metav1.PartialObjectMetadata:
				if o.Kind == "ChallengeInstanceRecord" {
					_, there := by.Namespaces["records"]
					kept = there && len(by.Namespaces) == 1
				}
			}
		}
		if kept != wanted {
			t.Errorf("RECORD_RETENTION=%s: records are kept: %v", retention, kept)
		}
	}
}

// The address of a pod matters until it is ready, and its image where the node pulls that at every start.
func TestTrimPod(t *testing.T) {
	for name, tc := range map[string]struct {
		ready   corev1.ConditionStatus
		policy  corev1.PullPolicy
		started bool
		want    string
	}{
		"begins":            {corev1.ConditionFalse, corev1.PullIfNotPresent, false, "10.1.0.1 awaits its probe"},
		"has begun":         {corev1.ConditionFalse, corev1.PullIfNotPresent, true, "10.1.0.1"},
		"ready":             {corev1.ConditionTrue, corev1.PullIfNotPresent, true, ""},
		"pulled every time": {corev1.ConditionTrue, corev1.PullAlways, true, " 0123456789abcdef"},
		"never pulled":      {corev1.ConditionTrue, corev1.PullNever, true, ""},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "challenge-a", Labels: map[string]string{bergv1.LabelComponent: bergv1.ComponentPod}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", ImagePullPolicy: tc.policy}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.1.0.1",
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: tc.ready}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "web", ImageID: "example.com/web@sha256:0123456789abcdef0123456789abcdef", Started: &tc.started,
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}},
			},
		}
		trim(pod)
		got := pod.Status.PodIP
		if s := pod.Status.ContainerStatuses[0]; s.ImageID != "" {
			got += " " + s.ImageID
		} else if s.Started != nil {
			got += " awaits its probe"
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// What a solver wrote is kept, and what it was told is not.
func TestTrimSolver(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg-check-a", Labels: map[string]string{bergv1.LabelComponent: bergv1.ComponentSolver}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "solver", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted",
			Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}, {Type: corev1.PodReady}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "sidecar"}, {Name: "solver", Image: "x", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "said"}}},
			},
		},
	}
	trim(pod)
	s := pod.Status
	if len(pod.Spec.Containers) > 0 || len(pod.Annotations) > 0 || len(s.Conditions) != 1 || s.Reason != "Evicted" ||
		len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Terminated.Message != "said" || s.ContainerStatuses[0].Image != "" {
		t.Errorf("%+v", pod)
	}
}

// Nodes are kept only where a setting depends on them, and without their images unless these are pulled in advance.
func TestCachesOfNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg          config.Berg
		kept, images bool
	}{
		"no setting": {config.Berg{}, false, true},
		"jails":      {config.Berg{Challenge: config.Challenge{Defaults: config.Defaults{NestedSeccompProfile: "a.json"}}}, true, false},
		"auto":       {config.Berg{Challenge: config.Challenge{Defaults: config.Defaults{UserNamespaces: config.UserNamespacesAuto}}}, true, false},
		"prepull":    {config.Berg{Prepull: config.Prepull{Lead: time.Hour}}, true, true},
		"both":       {config.Berg{Challenge: config.Challenge{Defaults: config.Defaults{NestedSeccompProfile: "a.json"}}, Prepull: config.Prepull{Lead: time.Hour}}, true, true},
	} {
		options, kept := caches(tc.cfg), 0
		for kind := range options.ByObject {
			if _, isNode := kind.(*corev1.Node); isNode {
				kept++
			}
		}
		if (kept == 1) != tc.kept || kept > 1 {
			t.Errorf("%s: nodes are kept %d times", name, kept)
		}
		supported := true
		n := &corev1.Node{Status: corev1.NodeStatus{
			Images:          []corev1.ContainerImage{{Names: []string{"a"}}},
			RuntimeHandlers: []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &supported}}},
		}}
		options.Trim(n)
		if (len(n.Status.Images) > 0) != tc.images || !nodes.ComputeSupport([]corev1.Node{*n}).All {
			t.Errorf("%s: kept %+v", name, n.Status)
		}
	}
}
