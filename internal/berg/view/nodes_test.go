package view

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	for _, apply := range change {
		apply(n)
	}
	return n
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func silent(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

func TestWhichNodesTakeInstances(t *testing.T) {
	for name, tc := range map[string]struct {
		n                  *corev1.Node
		takes, forInstance bool
	}{
		"ready":                      {node(), true, true},
		"cordoned":                   {node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), false, false},
		"deleted":                    {node(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false, false},
		"for others":                 {node(tainted("gpu", corev1.TaintEffectNoSchedule)), false, false},
		"evicts":                     {node(tainted("gpu", corev1.TaintEffectNoExecute)), false, false},
		"not preferred":              {node(tainted("gpu", corev1.TaintEffectPreferNoSchedule)), true, true},
		"does not answer":            {node(silent, tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), false, true},
		"does not answer, no taint":  {node(silent), false, true},
		"has no disk":                {node(tainted(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)), false, true},
		"no condition":               {node(func(n *corev1.Node) { n.Status.Conditions = nil }), false, true},
		"ready is not the condition": {node(func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[1:] }), false, true},
	} {
		if got := TakesInstances(tc.n); got != tc.takes {
			t.Errorf("%s: takes instances %t", name, got)
		}
		if got := IsForInstances(tc.n); got != tc.forInstance {
			t.Errorf("%s: is for instances %t", name, got)
		}
	}
	if gpu := node(tainted("gpu", corev1.TaintEffectNoSchedule)); !TakesInstances(gpu, corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}) {
		t.Error("a toleration is not considered")
	}
}

func TestNodeSizes(t *testing.T) {
	if got := NodeSize(node(), 10); got.CPU.AsApproximateFloat64() != 1.8 || got.Pods != 99 {
		t.Errorf("%+v", got)
	}
	if got := NodeSize(node(), 0); got.Memory.String() != "8Gi" || got.Pods != 110 {
		t.Errorf("%+v", got)
	}
}
