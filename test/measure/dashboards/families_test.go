package dashboards

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// environments come and go, more of them at noon.
func (d *day) environments() {
	create := func(ctx context.Context, _ int) {
		e := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{GenerateName: apiserver.NamespacePrefix}, Spec: quixv1.EnvironmentSpec{ID: quixtest.NewID()}}
		Expect(k8s.Create(ctx, e)).To(Succeed())
		d.later(70*time.Second, e)
	}
	d.every(12*time.Second, create)
	d.every(5*time.Second, func(ctx context.Context, n int) {
		if d.between(10, 14) {
			create(ctx, n)
		}
	})
}

// hexactf has players until its broker is away for a while, and after.
func (d *day) hexactf(ctx context.Context, platform *hexactftest.Platform) {
	GinkgoHelper()
	ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent, hexactftest.Lasting(80*time.Second))
	d.every(8*time.Second, func(ctx context.Context, n int) {
		c := hexactftest.Challenge(ctx, ns, "web")
		if n%4 == 3 {
			d.later(40*time.Second, c)
		}
		if d.between(11, 12.5) {
			platform.Away()
		} else {
			platform.Back()
		}
	})
	DeferCleanup(platform.Back)
}

// tunnels are used by a client that asks an echo server, at times one that is not there.
func (d *day) tunnels(ctx context.Context) {
	GinkgoHelper()
	echo := tunneltest.NewEcho(0)
	var port atomic.Int32 // of the latest tunnel that is ready
	d.every(30*time.Second, func(ctx context.Context, _ int) {
		n := tunneltest.NewNetwork()
		Expect(k8s.Create(ctx, n)).To(Succeed())
		to := tunneltest.To("echo", echo.Port)
		if d.between(12, 14) {
			to = tunneltest.To("gone", 9) // nothing listens there
		}
		p := tunneltest.NewProxy(n.Name, to)
		Expect(k8s.Create(ctx, p)).To(Succeed())
		d.later(110*time.Second, p)
		d.later(115*time.Second, n)
	})
	d.every(2*time.Second, func(ctx context.Context, _ int) {
		var all tunnelv1.ContainerNetworkTunnelProxyList
		Expect(k8s.List(ctx, &all)).To(Succeed())
		var newest metav1.Time
		for _, p := range all.Items {
			if p.Status.State == tunnelv1.StateRunning && len(p.Status.TunnelStatuses) == 1 && p.Status.TunnelStatuses[0].State == tunnelv1.TunnelReady && newest.Before(&p.CreationTimestamp) {
				newest = p.CreationTimestamp
				port.Store(p.Status.TunnelStatuses[0].ClientProxyPort)
			}
		}
	})
	text := strings.Repeat("hello ", 1000)
	d.every(500*time.Millisecond, func(_ context.Context, n int) {
		if to := port.Load(); to != 0 && (n%4 == 0 || d.between(8, 16)) {
			_, _ = tunneltest.Ask(to, text) // a failure is what the dashboard is to show
		}
	})
	d.every(10*time.Second, func(context.Context, int) {
		if to := port.Load(); to != 0 {
			d.ended.Go(func() { d.hold(to) })
		}
	})
}

// hold keeps a stream open for a while, as a shell does.
func (d *day) hold(port int32) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))), 5*time.Second)
	if err != nil {
		return // its pair has just ended
	}
	defer func() { _ = c.Close() }()
	_, _ = tunneltest.Exchange(c, "hello")
	<-time.After(min(25*time.Second, time.Until(d.begin.Add(d.length))))
}

// registrySecret is the name of the login of BUILD_REGISTRY.
const registrySecret = "registry-login"

// prepareBuilds installs Tekton's kinds, and the role by which the operator works in namespaces of Projects.
func prepareBuilds(ctx context.Context) {
	GinkgoHelper()
	kibashiptest.Admin(ctx)
	text, err := os.ReadFile(filepath.Join(root, "test/integration/builds/testdata/tekton.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		definition := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(one), &definition.Object)).To(Succeed())
		apiserver.InstallDefinition(ctx, definition)
	}
}

// kibaship has teams that build an application each. One build in four fails.
func (d *day) kibaship() {
	d.every(25*time.Second, func(ctx context.Context, _ int) {
		project := kibashiptest.NewName()
		p := kibashiptest.NewProject(project)
		Expect(k8s.Create(ctx, p)).To(Succeed())
		d.later(3*time.Minute, p)
		d.ended.Go(func() {
			defer GinkgoRecover()
			namespace := kibashiptest.Namespace(project)
			Eventually(func(g Gomega) {
				g.Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: registrySecret}, StringData: map[string]string{"token": "x"}})).To(Succeed())
			}).Should(Succeed())
			app := kibashiptest.NewApplication(project, "web", kibashiptest.Public)
			Eventually(func() error { return k8s.Create(ctx, app) }).Should(Succeed())
			deployment := kibashiptest.NewDeployment(project, "web", "live")
			deployment.Spec.GitRepository = &kibashipv1.DeploymentSource{CommitSHA: fmt.Sprintf("%040d", 1)}
			Eventually(func() error { return k8s.Create(ctx, deployment) }).Should(Succeed())
		})
	})
	d.every(5*time.Second, d.build)
}

// build writes of runs what Tekton does: that they have begun, and that they are over after half a minute.
func (d *day) build(ctx context.Context, n int) {
	GinkgoHelper()
	runs := &unstructured.UnstructuredList{}
	runs.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRunList"})
	Expect(k8s.List(ctx, runs)).To(Succeed())
	for _, run := range runs.Items {
		created := run.GetCreationTimestamp()
		conditions, begun, _ := unstructured.NestedSlice(run.Object, "status", "conditions")
		over := begun && len(conditions) == 1 && conditions[0].(map[string]any)["status"] != "Unknown"
		takes := 25*time.Second + time.Duration(run.GetUID()[0]%8)*5*time.Second
		status, reason := "Unknown", "Running"
		if time.Since(created.Time) > takes {
			status, reason = "True", "Succeeded"
			if n%4 == 0 {
				status, reason = "False", "Failed"
			}
		} else if begun {
			continue
		}
		if over {
			continue
		}
		report(ctx, &run, status, reason)
	}
}

// report writes the status of a run and of its TaskRun.
func report(ctx context.Context, run *unstructured.Unstructured, status, reason string) {
	yes := true
	condition := map[string]any{"type": "Succeeded", "status": status, "reason": reason, "message": "Tasks Completed: 1"}
	child := &unstructured.Unstructured{}
	child.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "TaskRun"})
	child.SetNamespace(run.GetNamespace())
	child.SetName(run.GetName() + "-build")
	child.SetLabels(run.GetLabels())
	child.SetAnnotations(run.GetAnnotations())
	child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "PipelineRun", Name: run.GetName(), UID: run.GetUID(), Controller: &yes}})
	if k8s.Get(ctx, client.ObjectKeyFromObject(child), child) != nil && k8s.Create(ctx, child) != nil {
		return // the namespace is on its way out
	}
	step := func(name, result, value string) map[string]any {
		results := []any{map[string]any{"name": result, "type": "string", "value": value}}
		return map[string]any{"name": name, "container": "step-" + name, "terminated": map[string]any{"exitCode": int64(0)}, "results": results}
	}
	child.Object["status"] = map[string]any{"conditions": []any{condition}, "steps": []any{
		step("clone", "commit", fmt.Sprintf("%040d", 1)), step("build", "size", "1"), step("push", "digest", "sha256:"+strings.Repeat("1", 64)),
	}}
	if k8s.Status().Update(ctx, child) != nil {
		return
	}
	reported := map[string]any{
		"conditions": []any{condition}, "startTime": run.GetCreationTimestamp().UTC().Format(time.RFC3339),
		"childReferences": []any{map[string]any{"kind": "TaskRun", "name": child.GetName()}},
	}
	if status != "Unknown" {
		reported["completionTime"] = time.Now().UTC().Format(time.RFC3339)
	}
	run.Object["status"] = reported
	_ = k8s.Status().Update(ctx, run) // the next round tries again
}
