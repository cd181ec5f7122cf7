package berg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/cache"
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
	scheme := runtime.NewScheme()
	family := New(&config.Berg{})
	if err := family.AddToScheme.AddToScheme(scheme); err != nil {
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

// kept is a cache with one index, as the informer of every kind has it.
type kept struct {
	transform toolscache.TransformFunc
	store     toolscache.Indexer
}

func newKept() kept {
	options := cache.New("berg-operator").Options(caches(config.Berg{}))
	informer := options.NewInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	return kept{options.DefaultTransform, informer.GetIndexer()}
}

func (k kept) add(t *testing.T, o client.Object) {
	t.Helper()
	small, err := k.transform(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.store.Add(small); err != nil {
		t.Fatal(err)
	}
}

// trimmed returns an object as it is read from a cache.
func trimmed(t *testing.T, o client.Object) client.Object {
	t.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace("challenge-a")
	}
	k := newKept()
	k.add(t, o)
	return k.store.List()[0].(client.Object)
}

// What is read is what the API server sent, but for what is trimmed and what the operator has
// written there itself.
func TestWhatIsReadIsAsItWas(t *testing.T) {
	k := newKept()
	for n := range 50 {
		for _, o := range recorded(t, n) {
			want := o.DeepCopyObject().(client.Object)
			trim(want)
			k.add(t, o)
			read, exists, err := k.store.Get(o)
			if !exists || err != nil {
				t.Fatalf("%T is not there: %v", o, err)
			}
			got := read.(client.Object)
			for _, o := range []client.Object{want, got} {
				o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // what is read from a cache gets it again
				o.SetManagedFields(nil)
				if a := o.GetAnnotations(); a != nil {
					delete(a, corev1.LastAppliedConfigAnnotation)
				}
			}
			if diff := cmp.Diff(inJSON(t, want), inJSON(t, got)); diff != "" {
				t.Fatalf("%T of instance %d:\n%s", o, n, diff)
			}
			if err := k.store.Delete(o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func inJSON(t *testing.T, o any) string {
	t.Helper()
	text, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWhatKubectlNotedIsDropped(t *testing.T) {
	for _, o := range recorded(t, 0) {
		if _, noted := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; !noted {
			continue
		}
		if got := trimmed(t, o).GetAnnotations(); len(got) != 0 {
			t.Errorf("kept %v", got)
		}
		return
	}
	t.Fatal("nothing was recorded that kubectl wrote")
}

func TestPodsKeepWhatAStatusDependsOn(t *testing.T) {
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
		got := trimmed(t, pod).(*corev1.Pod)
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

// A start is told by times of its pods, and a crash loop by how its container ended last: also
// of an attempt that runs.
func TestPodsKeepWhenTheirStagesWereOver(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.Unix(1893456000+seconds, 0) }
	pod := &corev1.Pod{}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(1)},
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: at(3)},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(4)},
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "web", Image: "x", ImageID: "y", ContainerID: "z", RestartCount: 2, Started: ptr.To(true),
		State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(9)}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "flag", StartedAt: at(5), FinishedAt: at(6), ContainerID: "z"}},
	}}
	got := trimmed(t, pod).(*corev1.Pod).Status
	want := corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(1)},
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: at(2)},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(4)},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", RestartCount: 2,
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(9)}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, StartedAt: at(5)}},
		}},
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("kept\n%s\nwant\n%s", inJSON(t, got), inJSON(t, want))
	}
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
		return trimmed(t, p).(*corev1.Pod)
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
		got := trimmed(t, &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Reason: "Evicted", Message: "Evicted"}}).(*corev1.Pod)
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
		got := trimmed(t, d).(*appsv1.Deployment)
		if len(got.Status.Conditions) != tc.kept || got.Status.Replicas != 0 {
			t.Errorf("%s: kept %+v", name, got.Status)
		}
	}
}

func TestOfEventsOnlyWhatOurPodsSufferIsKept(t *testing.T) {
	event := func(namespace string) *eventsv1.Event {
		e := &eventsv1.Event{Note: "sandbox " + strings.Repeat("a", 64) + ": no runtime", Reason: "FailedCreatePodSandBox", DeprecatedCount: 3}
		e.Namespace, e.Regarding.UID, e.Regarding.Name = namespace, "uid", "pod"
		return trimmed(t, e).(*eventsv1.Event)
	}
	if got := event("challenge-a"); got.Note != "sandbox ...: no runtime" || got.Regarding.UID != "uid" || got.Regarding.Name != "" || got.DeprecatedCount != 0 {
		t.Errorf("of ours: %+v", got)
	}
	if got := event("kube-system"); got.Note != "" || got.Regarding.UID != "" {
		t.Errorf("of another: %+v", got)
	}
}

// TestCachesHoldLittleForEachInstance bounds what the caches grow by, and measures what they save: the informers of
// controller-runtime would keep the same objects, trimmed in the same way, decoded and each on its own.
func TestCachesHoldLittleForEachInstance(t *testing.T) {
	const first, instances, limit = 900, 300, 11 << 10
	each := func(k kept) int {
		fill := func(from, to int) {
			for n := from; n < to; n++ {
				for _, o := range recorded(t, n) {
					o.SetName(fmt.Sprintf("%T-%s", o, o.GetName())) // one index stands for those of all kinds
					k.add(t, o)
				}
			}
		}
		fill(0, first) // what is interned for all is there now, and the tables for that have their size
		before := heapInUse()
		fill(first, first+instances)
		grown := heapInUse() - before
		goruntime.KeepAlive(k)
		return grown / instances
	}
	compact := each(newKept())
	decoded := each(kept{
		transform: func(o any) (any, error) {
			trim(o.(client.Object))
			o.(client.Object).SetManagedFields(nil)
			return o, nil
		},
		store: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}),
	})
	t.Logf("%d bytes, and decoded %d", compact, decoded)
	if compact > limit {
		t.Errorf("the caches hold %d bytes for each instance, more than %d", compact, limit)
	}
	if decoded < 2*compact {
		t.Errorf("decoded objects would take %d bytes for each instance instead of %d: kit/cache no longer saves half", decoded, compact)
	}
}

// Everyone who may write in one namespace can label as many and as large objects there as they like.
func TestLabelledObjectsElsewhereTakeNoMemory(t *testing.T) {
	const objects, most = 200, 3 << 10
	large := func(n int) string { return fmt.Sprint(n) + strings.Repeat("x", 100<<10) }
	for name, object := range map[string]func(n int) client.Object{
		"ConfigMap": func(n int) client.Object { return &corev1.ConfigMap{Data: map[string]string{"a": large(n)}} },
		"Service":   func(n int) client.Object { return &corev1.Service{Spec: corev1.ServiceSpec{ExternalName: large(n)}} },
		"Deployment": func(n int) client.Object {
			return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Paused: true, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Hostname: large(n)}}}}
		},
		"Job": func(n int) client.Object {
			return &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Hostname: large(n)}}}}
		},
		"NetworkPolicy":       func(n int) client.Object { return &networkingv1.NetworkPolicy{} },
		"CiliumNetworkPolicy": func(n int) client.Object { return &ciliumv2.CiliumNetworkPolicy{} },
		"PodDisruptionBudget": func(n int) client.Object {
			return &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{Conditions: []metav1.Condition{{Message: large(n)}}}}
		},
		"HTTPRoute": func(n int) client.Object {
			return &gatewayv1.HTTPRoute{Spec: gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(large(n))}}}
		},
		"TLSRoute": func(n int) client.Object {
			return &gatewayv1.TLSRoute{Spec: gatewayv1.TLSRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(large(n))}}}
		},
		"Pod": func(n int) client.Object {
			return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Message: large(n)}}
		},
	} {
		all := newKept()
		before := heapInUse()
		for n := range objects {
			o := object(n)
			o.SetNamespace("tenant")
			o.SetName(fmt.Sprint("o", n))
			o.SetLabels(map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod})
			o.SetAnnotations(map[string]string{"large": large(n)})
			all.add(t, o)
		}
		each := (heapInUse() - before) / objects
		goruntime.KeepAlive(all)
		if each > most {
			t.Errorf("%s: the cache holds %d bytes for each, more than %d", name, each, most)
		}
	}
}

func heapInUse() int {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestSharedPartsAreReadWhileOthersAreAdded(t *testing.T) {
	k := newKept()
	var working sync.WaitGroup
	for worker := range 4 {
		objects := [][]client.Object{recorded(t, worker), recorded(t, worker+100)}
		working.Go(func() {
			for _, instance := range objects {
				for _, o := range instance {
					out, err := k.transform(o)
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
