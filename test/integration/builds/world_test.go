package builds

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// world is a Project with an Application, for one spec.
type world struct {
	project, namespace string
	app                *kibashipv1.Application
}

// newWorld makes one, with Secrets of these names.
func newWorld(ctx context.Context, spec kibashipv1.ApplicationSpec, secrets ...string) world {
	GinkgoHelper()
	w := world{project: "p" + uuid.NewString()[:8]}
	w.namespace = project(ctx, w.project)
	for _, name := range secrets {
		w.secret(ctx, name)
	}
	spec.ProjectRef.Name = w.project
	w.app = &kibashipv1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "project-" + w.project + "-app-web-kibaship-com"}, Spec: spec,
	}
	Expect(k8s.Create(ctx, w.app)).To(Succeed())
	ready(ctx, w.app)
	return w
}

// newBuild makes a world with a Deployment of a commit, which builds.
func newBuild(ctx context.Context, commit string) (world, *kibashipv1.Deployment, *unstructured.Unstructured) {
	GinkgoHelper()
	w := newWorld(ctx, git())
	d := w.deploy(ctx, commit)
	return w, d, w.running(ctx, d)
}

// git is an Application whose source is public.
func git() kibashipv1.ApplicationSpec {
	return kibashipv1.ApplicationSpec{
		Type:          kibashipv1.TypeGitRepository,
		GitRepository: &kibashipv1.GitRepository{Provider: kibashipv1.GitHub, Repository: "team/web", PublicAccess: true, Branch: "main"},
	}
}

func (w world) secret(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, StringData: map[string]string{"token": "x"}})).To(Succeed())
}

// deploy creates a Deployment, with the Secret that it needs for the registry.
func (w world) deploy(ctx context.Context, commit string) *kibashipv1.Deployment {
	GinkgoHelper()
	w.secret(ctx, registrySecret)
	return w.create(ctx, commit)
}

func (w world) create(ctx context.Context, commit string) *kibashipv1.Deployment {
	GinkgoHelper()
	d := &kibashipv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "project-" + w.project + "-app-web-deployment-live-kibaship-com"},
		Spec:       kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: w.app.Name}},
	}
	if commit != "" {
		d.Spec.GitRepository = &kibashipv1.DeploymentSource{CommitSHA: commit}
	}
	Expect(k8s.Create(ctx, d)).To(Succeed())
	return d
}

func sha(n int) string { return fmt.Sprintf("%040d", n) }

func digest(n int) string { return fmt.Sprintf("sha256:%064d", n) }

func kind(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: name})
	return u
}

// runs are the names of the PipelineRuns of a namespace.
func (w world) runs(ctx context.Context) []string {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRunList"})
	return apiserver.Names(ctx, list, client.InNamespace(w.namespace))
}

// running waits until a Deployment is Running, and returns its current run.
func (w world) running(ctx context.Context, d *kibashipv1.Deployment) *unstructured.Unstructured {
	GinkgoHelper()
	run := kind("PipelineRun")
	expect.Becomes(ctx, d, func(g Gomega) {
		g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
		g.Expect(d.Status.Phase).To(Equal(kibashipv1.DeploymentRunning), "%s; %s", d.Status.Message, expect.Conditions(d))
		g.Expect(d.Status.CurrentPipelineRun).NotTo(BeNil())
		g.Expect(d.Status.CurrentPipelineRun.Phase).To(Equal(kibashipv1.DeploymentRunning))
		g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: d.Status.CurrentPipelineRun.Name}, run)).To(Succeed())
	})
	return run
}

// volume is the one of a run, which Tekton makes and the run owns. Nothing here provides one: the
// protection of volumes in use is taken off, as it is where no pod has it any more.
func (w world) volume(ctx context.Context, run *unstructured.Unstructured) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "pvc-" + run.GetName(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "PipelineRun", Name: run.GetName(), UID: run.GetUID()}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	Expect(k8s.Create(ctx, claim)).To(Succeed())
	apiserver.RemoveFinalizers(ctx, claim)
	return claim
}

// step is what Tekton says of a step of a TaskRun.
func step(name string, exitCode int, results map[string]string) map[string]any {
	var all []any
	for key, value := range results {
		all = append(all, map[string]any{"name": key, "type": "string", "value": value})
	}
	return map[string]any{"name": name, "container": "step-" + name, "terminated": map[string]any{"exitCode": int64(exitCode)}, "results": all}
}

// timedOut is what Tekton says of a step that took longer than its own timeout.
func timedOut(name string) map[string]any {
	s := step(name, 1, nil)
	s["terminationReason"] = "TimeoutExceeded"
	return s
}

// pod makes the pod of a run, which has ended. No node runs it.
func (w world) pod(ctx context.Context, name string, ended time.Time) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no": "node"}, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "step-build", Image: "example.org/x:1"}},
		},
	}
	Expect(k8s.Create(ctx, pod)).To(Succeed())
	before := pod.DeepCopy() // the scheduler writes to it, too
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "step-build", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(ended)}},
	}}
	Expect(k8s.Status().Patch(ctx, pod, client.MergeFrom(before))).To(Succeed())
	return pod
}

// ends writes the status of a run and of its TaskRun, as Tekton does.
func (w world) ends(ctx context.Context, run *unstructured.Unstructured, status, reason string, task map[string]any) {
	GinkgoHelper()
	child := kind("TaskRun")
	child.SetNamespace(w.namespace)
	child.SetName(run.GetName() + "-build")
	child.SetLabels(run.GetLabels())
	child.SetAnnotations(run.GetAnnotations())
	yes := true
	child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "PipelineRun", Name: run.GetName(), UID: run.GetUID(), Controller: &yes}})
	if err := k8s.Get(ctx, client.ObjectKeyFromObject(child), child); err != nil {
		Expect(k8s.Create(ctx, child)).To(Succeed())
	}
	child.Object["status"] = task
	Expect(k8s.Status().Update(ctx, child)).To(Succeed())
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed())
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	reported := map[string]any{
		"conditions":      []any{map[string]any{"type": "Succeeded", "status": status, "reason": reason, "message": "Tasks Completed: 1"}},
		"startTime":       now,
		"childReferences": []any{map[string]any{"kind": "TaskRun", "name": child.GetName()}},
	}
	if status != "Unknown" {
		reported["completionTime"] = now
	}
	run.Object["status"] = reported
	Expect(k8s.Status().Update(ctx, run)).To(Succeed())
}

func succeeded(steps ...any) map[string]any {
	return map[string]any{"conditions": []any{map[string]any{"type": "Succeeded", "status": "True", "reason": "Succeeded"}}, "steps": steps}
}

func failed(reason, message string, steps ...any) map[string]any {
	return map[string]any{
		"podName":    "pod",
		"conditions": []any{map[string]any{"type": "Succeeded", "status": "False", "reason": reason, "message": message}}, "steps": steps,
	}
}

// succeeds ends a run well.
func (w world) succeeds(ctx context.Context, run *unstructured.Unstructured, n int) {
	GinkgoHelper()
	w.ends(ctx, run, "True", "Succeeded", succeeded(
		step("clone", 0, map[string]string{"commit": sha(n)}), step("build", 0, nil), step("push", 0, map[string]string{"digest": digest(n)})))
}
