package olm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

const (
	// operatorNamespace is the one that the bundle suggests.
	operatorNamespace = "berg-operator-system"
	packageName       = "berg-operator"
	catalogImage      = "ghcr.io/bergctf/berg-operator-catalog:"
	deploymentName    = "berg-operator-controller-manager"
)

func csvName(version string) string { return packageName + ".v" + version }

// inOperatorNamespace names an object there.
func inOperatorNamespace(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: operatorNamespace, Name: name}
}

// subscribe does what an administrator does to install the operator: it applies
// config/olm, with this catalog and these settings.
func subscribe(ctx context.Context, catalog string, env map[string]string) {
	GinkgoHelper()
	file, err := os.Open(filepath.Join("..", "..", "..", "config", "olm", "install.yaml"))
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		Expect(err).NotTo(HaveOccurred())
		switch object.GetKind() {
		case operatorsv1alpha1.CatalogSourceKind:
			Expect(unstructured.SetNestedField(object.Object, catalogImage+catalog, "spec", "image")).To(Succeed())
		case operatorsv1alpha1.SubscriptionKind:
			Expect(unstructured.SetNestedSlice(object.Object, untyped(env), "spec", "config", "env")).To(Succeed())
		}
		Expect(world.Create(ctx, object)).To(Succeed())
	}
}

// configure sets variables of the operator in the Subscription; an empty value
// takes one away.
func configure(ctx context.Context, changes map[string]string) {
	GinkgoHelper()
	subscription := &operatorsv1alpha1.Subscription{}
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := world.Get(ctx, inOperatorNamespace(packageName), subscription); err != nil {
			return err
		}
		env := map[string]string{}
		for _, v := range subscription.Spec.Config.Env {
			env[v.Name] = v.Value
		}
		maps.Copy(env, changes)
		maps.DeleteFunc(env, func(_, value string) bool { return value == "" })
		subscription.Spec.Config.Env = variables(env)
		return world.Update(ctx, subscription)
	})).To(Succeed())
}

func variables(env map[string]string) []corev1.EnvVar {
	var list []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, corev1.EnvVar{Name: name, Value: env[name]})
	}
	return list
}

func untyped(env map[string]string) []any {
	var list []any
	for _, v := range variables(env) {
		list = append(list, map[string]any{"name": v.Name, "value": v.Value})
	}
	return list
}

// offer puts another catalog in the place of the one that is there, as the one who
// publishes a new version does.
func offer(ctx context.Context, catalog string) {
	GinkgoHelper()
	source := &operatorsv1alpha1.CatalogSource{}
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := world.Get(ctx, inOperatorNamespace(packageName), source); err != nil {
			return err
		}
		source.Spec.Image = catalogImage + catalog
		return world.Update(ctx, source)
	})).To(Succeed())
}

func (c *cluster) csv(ctx context.Context, version string) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	csv := &operatorsv1alpha1.ClusterServiceVersion{}
	return csv, c.Get(ctx, inOperatorNamespace(csvName(version)), csv)
}

// expectInstalled waits until a version is installed and stays that.
func expectInstalled(ctx context.Context, version string, env map[string]string) {
	GinkgoHelper()
	expectSettled(ctx, installLimit, func(ctx context.Context) error { return world.installed(ctx, version, env) })
}

// expectSettled waits until an installation has no problem, and stays so.
func expectSettled(ctx context.Context, limit time.Duration, findProblem func(context.Context) error) {
	GinkgoHelper()
	var since time.Time
	expect.Until(ctx, limit, func(ctx context.Context) error {
		if err := findProblem(ctx); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if held := time.Since(since); held < settled {
			return fmt.Errorf("it is installed, for %s now", held.Round(time.Second))
		}
		return nil
	})
}

// installed is nil if this version, no other one, runs with these
// settings.
func (c *cluster) installed(ctx context.Context, version string, env map[string]string) error {
	var versions operatorsv1alpha1.ClusterServiceVersionList
	if err := c.List(ctx, &versions, client.InNamespace(operatorNamespace)); err != nil {
		return err
	}
	if len(versions.Items) != 1 || versions.Items[0].Name != csvName(version) || versions.Items[0].Status.Phase != operatorsv1alpha1.CSVPhaseSucceeded {
		return fmt.Errorf("want %s Succeeded and no other, have %s", csvName(version), describe(versions.Items))
	}
	deployment, err := c.deployment(ctx)
	if err != nil {
		return err
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if !ofVersion(container, version) {
		return fmt.Errorf("the Deployment runs %s", container.Image)
	}
	for name, value := range env {
		if have := setting(container, name); have != value {
			return fmt.Errorf("the Deployment has %s=%q, want %q", name, have, value)
		}
	}
	status := deployment.Status
	want := *deployment.Spec.Replicas
	if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas != want || status.AvailableReplicas != want || status.Replicas != want {
		return fmt.Errorf("the Deployment is being rolled out: %+v", status)
	}
	return nil
}

func ofVersion(container corev1.Container, version string) bool {
	return strings.HasSuffix(container.Image, ":v"+version)
}

func setting(container corev1.Container, name string) string {
	for _, v := range container.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

func (c *cluster) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	return deployment, c.Get(ctx, inOperatorNamespace(deploymentName), deployment)
}

// describe is phase, reason and message of each version.
func describe(versions []operatorsv1alpha1.ClusterServiceVersion) string {
	var all []string
	for _, csv := range versions {
		all = append(all, fmt.Sprintf("%s %s %s (%s)", csv.Name, csv.Status.Phase, csv.Status.Reason, csv.Status.Message))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// operatorPods returns the operator's pods that are not on their way out.
func (c *cluster) operatorPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.List(ctx, &list, client.InNamespace(operatorNamespace), client.MatchingLabels{"control-plane": "controller-manager"})
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
}

// readyPods returns the names of the operator's pods that are ready.
func (c *cluster) readyPods(ctx context.Context) ([]string, error) {
	pods, err := c.operatorPods(ctx)
	var names []string
	for _, pod := range pods {
		if deployed.PodReady(&pod) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names, err
}

// gone is an error while the object exists.
func gone(ctx context.Context, key client.ObjectKey, object client.Object) error {
	err := world.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	default:
		return errors.New(key.String() + " exists")
	}
}

// report prints what is needed to understand a failure.
func report(ctx context.Context) {
	say := func(format string, args ...any) { fmt.Fprintf(GinkgoWriter, format+"\n", args...) }
	var versions operatorsv1alpha1.ClusterServiceVersionList
	err := world.List(ctx, &versions, client.InNamespace(operatorNamespace))
	say("versions: %s %v", describe(versions.Items), err)
	for _, csv := range versions.Items {
		for _, c := range csv.Status.Conditions {
			say("   %s %s %s: %s", csv.Name, c.LastTransitionTime.Format(time.TimeOnly), c.Phase, c.Message)
		}
	}
	subscription := &operatorsv1alpha1.Subscription{}
	err = world.Get(ctx, inOperatorNamespace(packageName), subscription)
	say("subscription: %+v %v", subscription.Status.Conditions, err)
	pods, err := world.operatorPods(ctx)
	say("pods %v", err)
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			say("   %s ready=%v restarts=%d %+v", pod.Name, c.Ready, c.RestartCount, c.LastTerminationState.Terminated)
		}
	}
	var events corev1.EventList
	err = world.List(ctx, &events, client.InNamespace(operatorNamespace))
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	say("events %v", err)
	for _, e := range events.Items[max(0, len(events.Items)-40):] {
		say("   %s %s/%s %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
}
