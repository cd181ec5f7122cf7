package overview

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

var settings = plan.Settings{
	CPURequest: resource.MustParse("100m"), CPULimit: resource.MustParse("1"),
	MemoryRequest: resource.MustParse("128Mi"), MemoryLimit: resource.MustParse("512Mi"), DiskRequest: resource.MustParse("64Mi"),
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// instances returns a number of instances that a function completes. They were created a minute apart, the first one longest ago.
func instances(namespace, of string, n int, complete func(*bergv1.ChallengeInstance)) (all []bergv1.ChallengeInstance) {
	for k := range n {
		i := bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", of, k), Generation: 1, CreationTimestamp: ago(time.Duration(n-k) * time.Minute),
		}}
		i.Spec.ChallengeRef.Name, i.Spec.Flag = of, "flag{never}"
		i.Status.ObservedGeneration = 1
		i.Status.Conditions = []metav1.Condition{condition(bergv1.ConditionChallengeFound, metav1.ConditionTrue, bergv1.ReasonFound, "")}
		complete(&i)
		all = append(all, i)
	}
	return all
}

func runs(i *bergv1.ChallengeInstance) {
	i.Status.Phase, i.Status.InstanceID = bergv1.PhaseRunning, "id"
	i.Status.ExpiresAt = &metav1.Time{Time: noon.Add(time.Hour)}
}

func cannotPull(i *bergv1.ChallengeInstance) {
	i.Status.Phase, i.Status.InstanceID, i.Status.Cause = bergv1.PhaseStarting, "id", bergv1.CauseImageUnavailable
	i.Status.Conditions = append(i.Status.Conditions, condition(bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff", "Container web: ImagePullBackOff"))
}

func waits(cause bergv1.Cause, c metav1.Condition) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) {
		i.Status.Phase, i.Status.Cause = bergv1.PhasePending, cause
		i.Status.Conditions = append(i.Status.Conditions, c)
	}
}

func challenge(name string, change func(*bergv1.Challenge)) bergv1.Challenge {
	c := bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name}}
	c.Spec.Containers = []bergv1.Container{{Hostname: "web", Image: "a", Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicPort}}}}
	c.Status.Conditions = []metav1.Condition{condition(bergv1.ChallengeConditionAccepted, metav1.ConditionTrue, bergv1.ChallengeAccepted, "")}
	if change != nil {
		change(&c)
	}
	return c
}

func node(name string, taints ...corev1.Taint) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return n
}

// quiet is an event with nothing but an operator and a node.
func quiet() doctor.Survey {
	s := doctor.Survey{
		Now: noon, Plugin: "v0.1.0", Leader: "pod-1_x", Renewed: noon, LeaseTime: 15 * time.Second, Unreadable: map[string]string{},
		Nodes: []corev1.Node{node("a")}, PodsOnNodes: map[string]int{}, Reserved: map[string]corev1.ResourceList{},
		Checks: []bergv1.ChallengeCheck{}, Records: []metav1.PartialObjectMetadata{},
	}
	s.Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "berg-operator-system", Name: "berg-operator-controller-manager"}}
	s.Deployment.Spec.Replicas = ptr.To[int32](2)
	s.Deployment.Status.ReadyReplicas, s.Deployment.Status.UpdatedReplicas = 2, 2
	s.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: "ghcr.io/x/berg-operator:v0.1.0"}}
	return s
}

// busy is an event in which everything happens.
func busy() doctor.Survey {
	s := quiet()
	c := &s.Deployment.Spec.Template.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "RECORD_RETENTION", Value: "24h"}, {Name: "CHECK_CONCURRENCY", Value: "1"}, {Name: "IMAGE_PREPULL_LEAD", Value: "30m"}}
	s.Nodes = append(s.Nodes, node("b"), node("control-plane", corev1.Taint{Effect: corev1.TaintEffectNoSchedule}))
	s.PodsOnNodes = map[string]int{"a": 60, "b": 40}
	s.Reserved = map[string]corev1.ResourceList{"a": {corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("2Gi")}}
	s.NodePorts = 2600
	s.Instances = append(s.Instances, instances("berg", "guestbook", 12, runs)...)
	s.Instances[0].Status.ExpiresAt = &metav1.Time{Time: noon.Add(time.Minute)}
	s.Instances[1].Annotations = map[string]string{bergv1.AnnotationFrozen: "2030-06-01T11:00:00Z"}
	s.Instances[2].Status.Conditions = append(s.Instances[2].Status.Conditions, condition(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged, ""))
	s.Instances = append(s.Instances, instances("berg", "bakery", 5, cannotPull)...)
	s.Instances = append(s.Instances, instances("finals", "empty", 1, func(i *bergv1.ChallengeInstance) {
		i.Status.Phase, i.Status.Cause = bergv1.PhaseFailed, bergv1.CauseInvalid
		i.Status.Conditions = []metav1.Condition{condition(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonNothingToRun, "The Challenge has no containers")}
	})...)
	full := func(limit string) metav1.Condition {
		return condition(bergv1.ConditionAdmitted, metav1.ConditionFalse, bergv1.ReasonQueued,
			"Queued: the limit set by "+limit+" is reached. The instance starts automatically, in creation order, when a slot is free; its timeout has not started")
	}
	s.Instances = append(s.Instances, instances("berg", "popular", 7, waits(bergv1.CauseQueued, full("spec.maxInstances of Challenge popular")))...)
	s.Instances = append(s.Instances, instances("berg", "other", 2, waits(bergv1.CauseQueued, full("the operator's CHALLENGE_MAX_INSTANCES (18)")))...)
	s.Instances = append(s.Instances, instances("berg", "second", 3, waits(bergv1.CauseOwnerBusy, condition(bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy, "")))...)
	s.Instances = append(s.Instances, instances("berg", "later", 1, waits(bergv1.CauseFrozen, condition(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonFrozen, "")))...)
	s.Uses = &view.Uses{}
	var uses []gateadmin.HostUse
	for n, last := range []time.Time{noon, noon.Add(-time.Hour), {}, {}} {
		s.Instances[n].Status.Services = []bergv1.ServiceEndpoint{{Hostname: fmt.Sprint("web-", n)}}
		uses = append(uses, gateadmin.HostUse{ID: gateadmin.ID(fmt.Sprint("web-", n)), First: last, Last: last})
	}
	s.Uses.Merge([]gateadmin.Report{{Since: noon.Add(-24 * time.Hour), Hosts: uses}}, noon, true)
	images := func(status metav1.ConditionStatus, reason, message string) func(*bergv1.Challenge) {
		return func(c *bergv1.Challenge) {
			c.Status.Conditions = append(c.Status.Conditions, condition(bergv1.ChallengeConditionImagesReady, status, reason, message))
		}
	}
	s.Challenges = []bergv1.Challenge{
		challenge("guestbook", images(metav1.ConditionTrue, bergv1.ImagesPulled, "")),
		challenge("bakery", images(metav1.ConditionFalse, bergv1.ImagesPullFailed, "node a: not found")),
		challenge("popular", func(c *bergv1.Challenge) { c.Spec.MaxInstances = 5 }),
		challenge("huge", func(c *bergv1.Challenge) {
			c.Spec.Containers[0].ResourceRequests = &bergv1.Resources{CPU: ptr.To(bergv1.Amount("1"))}
		}),
		challenge("later", func(c *bergv1.Challenge) {
			c.Annotations = map[string]string{bergv1.AnnotationFrozen: "yes"}
			images(metav1.ConditionFalse, bergv1.ImagesScheduled, "")(c)
		}),
		challenge("empty", func(c *bergv1.Challenge) {
			c.Spec.Containers = nil
			c.Status.Conditions = []metav1.Condition{condition(bergv1.ChallengeConditionAccepted, metav1.ConditionFalse, bergv1.ReasonNothingToRun, "it has no containers")}
		}),
	}
	check := func(name string, c ...metav1.Condition) bergv1.ChallengeCheck {
		return bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name}, Status: bergv1.ChallengeCheckStatus{Conditions: c}}
	}
	s.Checks = []bergv1.ChallengeCheck{
		check("guestbook", condition(bergv1.CheckConditionSolvable, metav1.ConditionTrue, "Solved", "")),
		check("bakery", condition(bergv1.CheckConditionSolvable, metav1.ConditionFalse, "NeverStarted", "its image cannot be pulled")),
		check("new", condition(bergv1.CheckConditionSolvable, metav1.ConditionUnknown, "NotChecked", ""), condition(bergv1.CheckConditionRunning, metav1.ConditionTrue, "Solving", "")),
	}
	s.Records = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(time.Hour)}}, {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(2 * time.Minute)}}}
	return s
}

func TestScreens(t *testing.T) {
	for name, s := range map[string]doctor.Survey{
		"quiet": quiet(),
		"busy":  busy(),
		"many-problems": func() doctor.Survey {
			s := quiet()
			for n := range 9 {
				s.Instances = append(s.Instances, instances("berg", fmt.Sprint("c", n), 1, func(i *bergv1.ChallengeInstance) {
					i.Status.Phase, i.Status.InstanceID, i.Status.Cause = bergv1.PhaseStarting, "id", bergv1.CauseCrashing
					i.Status.Conditions = append(i.Status.Conditions, condition(bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff", fmt.Sprintf("Container web%d: it ended", n)))
				})...)
			}
			return s
		}(),
		"poor-user": func() doctor.Survey {
			s := quiet()
			s.Deployment, s.Nodes, s.PodsOnNodes, s.Reserved, s.Checks, s.Records = nil, nil, nil, nil, nil, nil
			for what, noun := range map[string]string{"operator": "Deployments", "nodes": "nodes", "pods": "pods", "services": "Services", "challenges": "Challenges", "checks": "ChallengeChecks", "records": "records", "uses": "the pods of the gate"} {
				s.Unreadable[what] = "you may not read " + noun
			}
			s.Instances = instances("berg", "guestbook", 1, runs)
			return s
		}(),
		"no-node": func() doctor.Survey {
			s := quiet()
			s.Nodes[0].Spec.Unschedulable = true
			s.Challenges = []bergv1.Challenge{challenge("guestbook", nil)}
			return s
		}(),
	} {
		o := New(s, &settings, "berg-records")
		var text strings.Builder
		for _, l := range o.Lines() {
			fmt.Fprintf(&text, "%-8s %s: %s\n", l.Level, l.Check, l.Text)
			if l.Do != "" {
				fmt.Fprintf(&text, "         -> %s\n", l.Do)
			}
		}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw)+text.String(), "flag{") {
			t.Errorf("%s shows a flag", name)
		}
		path := "testdata/" + name + ".txt"
		if *update {
			if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text.String() != string(want) {
			t.Errorf("%s:\n%swant:\n%s", name, text.String(), want)
		}
	}
}

// What the settings of an operator do not allow to calculate is left out.
func TestInvalidSettings(t *testing.T) {
	if o := New(busy(), nil, ""); o.Capacity == nil || o.Capacity.Headroom != nil {
		t.Errorf("%+v", o.Capacity)
	}
}
