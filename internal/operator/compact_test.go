package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// sample is one object of testdata/instance.yaml, in JSON.
type sample struct {
	kind schema.GroupVersionKind
	text string
}

var readSamples = sync.OnceValues(func() ([]sample, error) {
	data, err := os.ReadFile("testdata/instance.yaml")
	if err != nil {
		return nil, err
	}
	var out []sample
	documents := yamlstream.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(u); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(u.Object) == 0 {
			continue // comments alone
		}
		text, err := json.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		out = append(out, sample{u.GroupVersionKind(), string(text)})
	}
})

// recorded returns the objects of the n-th instance, as they come from the API server.
func recorded(t *testing.T, n int) []client.Object {
	t.Helper()
	samples, err := readSamples()
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	change := strings.NewReplacer("5f0c3e64-", fmt.Sprintf("%08x-", n), "alice", fmt.Sprintf("alice-%d", n))
	out := make([]client.Object, 0, len(samples))
	for _, r := range samples {
		o, err := scheme.New(r.kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(change.Replace(r.text)), o); err != nil {
			t.Fatal(err)
		}
		out = append(out, o.(client.Object))
	}
	if len(out) != 8 {
		t.Fatalf("%d objects were recorded", len(out))
	}
	return out
}

// compacted returns an object as it is read from a cache.
func compacted(t *testing.T, o client.Object) client.Object {
	t.Helper()
	out, err := compact()(o)
	if err != nil {
		t.Fatal(err)
	}
	return unpack(out).(client.Object)
}

func TestSharingChangesNothing(t *testing.T) {
	common := newSharing()
	for n := range 50 {
		for _, o := range recorded(t, n) {
			before := o.DeepCopyObject()
			common.share(o)
			if !reflect.DeepEqual(before, o) {
				t.Fatalf("%T of instance %d was changed:\n%+v\n%+v", o, n, before, o)
			}
		}
	}
}

func TestEqualPartsAreOne(t *testing.T) {
	common := newSharing()
	deployment := func(image string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Labels = map[string]string{"a": "b"}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image, SecurityContext: &corev1.SecurityContext{}}}
		common.share(d)
		return d
	}
	one, same, other := deployment("x"), deployment("x"), deployment("y")
	if &one.Spec.Template.Spec.Containers[0] != &same.Spec.Template.Spec.Containers[0] {
		t.Error("equal containers are kept twice")
	}
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() {
		t.Error("equal labels are kept twice")
	}
	if one.Spec.Template.Spec.Containers[0].SecurityContext != other.Spec.Template.Spec.Containers[0].SecurityContext {
		t.Error("an equal part of parts that differ is kept twice")
	}
	if other.Spec.Template.Spec.Containers[0].Image != "y" {
		t.Errorf("got the image %s", other.Spec.Template.Spec.Containers[0].Image)
	}
}

func TestWhatIsKeptLiesApartFromWhatWasDecoded(t *testing.T) {
	common := newSharing()
	for _, size := range []int{5, longestText + 1} {
		decoded := strings.Repeat("x", 2*size)
		replicas := ptr.To(int32(size))
		d := &appsv1.Deployment{}
		d.Name, d.Spec.Replicas = decoded[:size], replicas
		common.share(d)
		if d.Name != decoded[:size] || unsafe.StringData(d.Name) == unsafe.StringData(decoded) {
			t.Errorf("a text of %d bytes keeps the %d it was cut out of", size, len(decoded))
		}
		if *d.Spec.Replicas != int32(size) || d.Spec.Replicas == replicas {
			t.Error("what a pointer refers to is kept where it was")
		}
	}
}

func TestSharingForgetsWhatWasMetOnce(t *testing.T) {
	common := newSharing()
	for n := range 10 * recentParts {
		common.share(&corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerName(fmt.Sprint(n))}}})
	}
	for name, kept := range map[string]int{
		"texts": len(common.texts.recent) + len(common.texts.earlier),
		"parts": len(common.parts.recent) + len(common.parts.earlier),
	} {
		if kept > 2*recentParts {
			t.Errorf("%d %s are kept", kept, name)
		}
	}
}

func TestWhatKubectlNotedIsDropped(t *testing.T) {
	for _, o := range recorded(t, 0) {
		if _, noted := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; !noted {
			continue
		}
		if got := compacted(t, o).GetAnnotations(); len(got) != 0 {
			t.Errorf("kept %v", got)
		}
		return
	}
	t.Fatal("nothing was recorded that kubectl wrote")
}

func TestPodsKeepWhatTheirStatusIsJudgedBy(t *testing.T) {
	for _, o := range recorded(t, 0) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "web", Image: "x", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
			{Name: "log", Ready: true},
		}
		conditions := len(pod.Status.Conditions)
		mark := map[string]string{bergv1.LabelInstanceID: "0192f3c4-0000-7000-8000-000000000000"}
		maps.Copy(pod.Annotations, mark)
		got := compacted(t, pod).(*corev1.Pod)
		if !equality.Semantic.DeepEqual(got.Spec, corev1.PodSpec{}) || !maps.Equal(got.Annotations, mark) || len(got.Labels) != 3 {
			t.Errorf("kept too much: %+v", got)
		}
		if len(got.Status.ContainerStatuses) != 1 || got.Status.ContainerStatuses[0].State.Waiting.Reason != "CrashLoopBackOff" {
			t.Errorf("got %+v", got.Status.ContainerStatuses)
		}
		if len(got.Status.Conditions) != 2 || conditions <= 2 {
			t.Errorf("of %d conditions: %+v", conditions, got.Status.Conditions)
		}
		return
	}
	t.Fatal("no pod was recorded")
}

func TestOfAContainerThatEndedItsOwnWordsAreDropped(t *testing.T) {
	pod := func(reason, message string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "mesh", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:                 "web",
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: 3, Message: message, ContainerID: "c"}},
		}}
		return compacted(t, p).(*corev1.Pod)
	}
	for reason, want := range map[string]string{"Error": "", "OOMKilled": "", "StartError": "no such file", "ContainerCannotRun": "no such file"} {
		got := pod(reason, "no such file").Status.ContainerStatuses[0].LastTerminationState.Terminated
		if got.Reason != reason || got.ExitCode != 3 || got.Message != want || got.ContainerID != "" {
			t.Errorf("kept of %s: %+v", reason, got)
		}
	}
	if got := pod("Error", "").Status.InitContainerStatuses; len(got) != 1 || got[0].State.Waiting.Reason != "ErrImagePull" {
		t.Errorf("of containers that admission has added: %+v", got)
	}
}

func TestOfAPodThatEndedTheReasonIsKept(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]string{corev1.PodFailed: "Evicted", corev1.PodSucceeded: "Evicted", corev1.PodRunning: "", corev1.PodPending: ""} {
		got := compacted(t, &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Reason: "Evicted", Message: "Evicted"}}).(*corev1.Pod)
		if got.Status.Reason != want || got.Status.Message != want {
			t.Errorf("kept of one that is %s: %+v", phase, got.Status)
		}
	}
}

func TestOfADeploymentsStatusWhatKeepsPodsAwayIsKept(t *testing.T) {
	condition := func(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: "why"}
	}
	for name, tc := range map[string]struct {
		condition appsv1.DeploymentCondition
		kept      int
	}{
		"pods are refused":         {condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate"), 1},
		"no ReplicaSet":            {condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError"), 1},
		"it takes long":            {condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded"), 0},
		"it gets on":               {condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable"), 0},
		"its pods are not there":   {condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable"), 0},
		"pods are refused no more": {condition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "FailedCreate"), 0},
	} {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1, Conditions: []appsv1.DeploymentCondition{tc.condition}}}
		got := compacted(t, d).(*appsv1.Deployment)
		if len(got.Status.Conditions) != tc.kept || got.Status.Replicas != 0 {
			t.Errorf("%s: kept %+v", name, got.Status)
		}
	}
}

func TestOfEventsOnlyWhatOurPodsSufferIsKept(t *testing.T) {
	event := func(namespace string) *eventsv1.Event {
		e := &eventsv1.Event{Note: "sandbox " + strings.Repeat("a", 64) + ": no runtime", Reason: "FailedCreatePodSandBox", DeprecatedCount: 3}
		e.Namespace, e.Regarding.UID, e.Regarding.Name = namespace, "uid", "pod"
		return compacted(t, e).(*eventsv1.Event)
	}
	if got := event("challenge-a"); got.Note != "sandbox ...: no runtime" || got.Regarding.UID != "uid" || got.Regarding.Name != "" || got.DeprecatedCount != 0 {
		t.Errorf("of ours: %+v", got)
	}
	if got := event("kube-system"); got.Note != "" || got.Regarding.UID != "" {
		t.Errorf("of another: %+v", got)
	}
}

// TestCachesHoldLittleForEachInstance bounds what the caches grow by. Without sharing
// and packing it is 26 KiB, and 33 KiB with all that the API server sends.
func TestCachesHoldLittleForEachInstance(t *testing.T) {
	const instances, most = 600, 8 << 10
	transform := compact()
	byNamespace := index{functions: toolscache.Indexers{}}
	byNamespace.Indexer = toolscache.NewIndexer(toolscache.DeletionHandlingMetaNamespaceKeyFunc,
		byNamespace.coarse(toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}))
	fill := func(from, to int) {
		for n := from; n < to; n++ {
			for _, o := range recorded(t, n) {
				o.SetName(fmt.Sprintf("%T-%s", o, o.GetName())) // one index stands for those of all kinds
				kept, err := transform(o)
				if err != nil {
					t.Fatal(err)
				}
				if err := byNamespace.Add(kept); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	fill(0, instances/2) // what is shared is there now
	before := heapInUse()
	fill(instances/2, instances)
	each := (heapInUse() - before) / (instances / 2)
	runtime.KeepAlive(byNamespace)
	t.Logf("%d bytes", each)
	if each > most {
		t.Errorf("the caches hold %d bytes for each instance, more than %d", each, most)
	}
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestSharedPartsAreReadWhileOthersAreAdded(t *testing.T) {
	transform := compact()
	var working sync.WaitGroup
	for worker := range 4 {
		objects := [][]client.Object{recorded(t, worker), recorded(t, worker+100)}
		working.Go(func() {
			for _, instance := range objects {
				for _, o := range instance {
					out, err := transform(o)
					if err != nil {
						t.Error(err)
						return
					}
					_ = out.(client.Object).DeepCopyObject()
				}
			}
		})
	}
	working.Wait()
}
