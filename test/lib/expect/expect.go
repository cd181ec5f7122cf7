// Package expect waits for what a custom resource shows: its phase, its conditions, its
// events, its end. It knows no kind: any will do whose status has a phase and conditions as
// Kubernetes defines them. Each wait is bounded by the suite's default, and a failure lists
// all conditions.
package expect

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// status is what the status of every kind has.
type status struct {
	Phase              string             `json:"phase,omitempty"`
	Message            string             `json:"message,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

func (s status) String() string {
	var b strings.Builder
	if s.Message != "" {
		b.WriteString(s.Message + "; ")
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "%s=%s/%s (%s); ", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

func statusOf(o runtime.Object) status {
	GinkgoHelper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	Expect(err).NotTo(HaveOccurred())
	var resource struct {
		Status status `json:"status"`
	}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &resource)).To(Succeed())
	return resource.Status
}

func get(ctx context.Context, o client.Object) error {
	return apiserver.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
}

// Reaches waits until a resource has a phase, and refreshes it.
func Reaches[P ~string](ctx context.Context, o client.Object, phase P) {
	GinkgoHelper()
	ReachesWithin(ctx, o, phase, limits.Wait)
}

// ReachesWithin is Reaches with a limit of its own.
func ReachesWithin[P ~string](ctx context.Context, o client.Object, phase P, limit time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		s := statusOf(o)
		g.Expect(s.Phase).To(Equal(string(phase)), "conditions: %s", s)
	}).WithTimeout(limit).Should(Succeed())
}

// Settles waits until a resource has a phase and its status describes the spec as it is,
// and refreshes it.
func Settles[P ~string](ctx context.Context, o client.Object, phase P) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		s := statusOf(o)
		g.Expect(s.Phase).To(Equal(string(phase)), "conditions: %s", s)
		g.Expect(s.ObservedGeneration).To(Equal(o.GetGeneration()))
	}).Should(Succeed())
}

// Shows waits until a condition has a status and a reason, and refreshes the resource.
func Shows(ctx context.Context, o client.Object, conditionType string, want metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		s := statusOf(o)
		c := meta.FindStatusCondition(s.Conditions, conditionType)
		g.Expect(c).NotTo(BeNil())
		g.Expect(fmt.Sprint(c.Status, "/", c.Reason)).To(Equal(fmt.Sprint(want, "/", reason)), "conditions: %s", s)
	}).Should(Succeed())
}

// Says waits until the messages of the conditions contain a text, and refreshes the resource. A reason may be there
// before the whole of its message: what a pod waits for shows when the pod has tried.
func Says(ctx context.Context, o client.Object, text string, why ...any) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		g.Expect(Conditions(o)).To(ContainSubstring(text), why...)
	}).Should(Succeed())
}

// SaysNot expects that the conditions as last read do not contain a text.
func SaysNot(o client.Object, text string) {
	GinkgoHelper()
	Expect(Conditions(o)).NotTo(ContainSubstring(text))
}

// Observed waits until the status describes the spec as it is, or a later one, and refreshes
// the resource.
func Observed(ctx context.Context, o client.Object) {
	GinkgoHelper()
	generation := o.GetGeneration()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		g.Expect(statusOf(o).ObservedGeneration).To(BeNumerically(">=", generation))
	}).Should(Succeed())
}

// Gone waits until a resource does not exist.
func Gone(ctx context.Context, o client.Object) {
	GinkgoHelper()
	GoneWithin(ctx, o, limits.Wait)
}

// GoneWithin is Gone with a limit of its own.
func GoneWithin(ctx context.Context, o client.Object, limit time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		left := o.DeepCopyObject().(client.Object)
		g.Expect(apierrors.IsNotFound(get(ctx, left))).To(BeTrue(), "it exists: %s", statusOf(left))
	}).WithTimeout(limit).Should(Succeed())
}

// Deleted deletes a resource, and waits until it does not exist.
func Deleted(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(apiserver.Client.Delete(ctx, o)).To(Succeed())
	Gone(ctx, o)
}

// Removed is Deleted for a resource that may be gone already.
func Removed(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, o))).To(Succeed())
	Gone(ctx, o)
}

// Becomes refreshes a resource until all expectations of hold are met.
func Becomes(ctx context.Context, o client.Object, hold func(g Gomega)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		hold(g)
	}).Should(Succeed())
}

// Finalizer waits until a resource has a finalizer, and refreshes it.
func Finalizer(ctx context.Context, o client.Object, finalizer string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, o)).To(Succeed())
		g.Expect(controllerutil.ContainsFinalizer(o, finalizer)).To(BeTrue())
	}).Should(Succeed())
}

// Event waits for an event about a resource, of a type and a reason.
func Event(ctx context.Context, o client.Object, eventType, reason string) {
	GinkgoHelper()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(apiserver.Client.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID == o.GetUID() {
				seen = append(seen, fmt.Sprint(e.Type, "/", e.Reason))
			}
		}
		g.Expect(seen).To(ContainElement(eventType + "/" + reason))
	}).Should(Succeed())
}

// Until waits for a condition on the cluster that is asked for again and again. look returns
// why it does not hold yet.
func Until(ctx context.Context, limit time.Duration, look func(context.Context) error) {
	GinkgoHelper()
	Eventually(ctx, look).WithTimeout(limit).Should(Succeed())
}

// Refreshed is Until for what a resource shows: it reads the resource before each look.
func Refreshed(ctx context.Context, limit time.Duration, o client.Object, look func() error) {
	GinkgoHelper()
	Until(ctx, limit, func(ctx context.Context) error {
		if err := get(ctx, o); err != nil {
			return err
		}
		return look()
	})
}

// Conditions returns all conditions of a resource in one line.
func Conditions(o client.Object) string {
	GinkgoHelper()
	return statusOf(o).String()
}

// MaxMessage is how many bytes a condition says at most; the schema's own limit is
// 32,768.
const MaxMessage = 2048

// Readable checks that no message is longer than a person would read, or cut in the middle
// of a character.
func Readable(all []metav1.Condition) {
	GinkgoHelper()
	for _, c := range all {
		Expect(len(c.Message)).To(BeNumerically("<=", MaxMessage), c.Type)
		Expect(utf8.ValidString(c.Message)).To(BeTrue(), c.Type)
		Expect(c.Message).NotTo(ContainSubstring("\uFFFD"), c.Type)
	}
}

// None waits until there is no resource of a list's kind, with these options.
func None(ctx context.Context, list client.ObjectList, opts ...client.ListOption) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(apiserver.Client.List(ctx, list, opts...)).To(Succeed())
		items, err := meta.ExtractList(list)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(items).To(BeEmpty())
	}).Should(Succeed())
}
