package kibaship

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// A push and its image may take this much longer than a run of the same Pipeline that a bare client starts.
const share, slack = 1.15, 2 * time.Second

var _ = Describe("A push", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		setOperator(ctx, map[string]string{"GIT_WEBHOOK_URL": "http://pushes.example.org", "GIT_POLL_INTERVAL": "5s"})
		DeferCleanup(func(ctx SpecContext) {
			setOperator(ctx, map[string]string{"GIT_WEBHOOK_URL": "", "GIT_POLL_INTERVAL": ""})
		}, NodeTimeout(deployed.StartLimit))
	}, NodeTimeout(deployed.StartLimit))

	autoBuild := func(g *kibashipv1.GitRepository) { g.AutoBuild = &kibashipv1.AutoBuild{Enabled: true} }
	// pushed waits until the pushes of the branch main are built up to a commit.
	pushed := func(ctx context.Context, p platform, commit string) *kibashipv1.Deployment {
		GinkgoHelper()
		d := &kibashipv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "project-" + p.project + "-app-web-deployment-push-main-kibaship-com"}}
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.BuiltImage).NotTo(BeNil(), d.Status.Message)
			g.Expect(d.Status.BuiltImage.CommitSHA).To(Equal(commit), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).WithPolling(100 * time.Millisecond).Should(Succeed())
		return d
	}

	It("to a private repository is found by a question, and is built", func(ctx SpecContext) {
		p := newPlatform(ctx)
		commit := newRepository(ctx, "private/"+p.project, map[string]string{"Dockerfile": hello, "text": "first"})
		p.token(ctx, "git", site.Token)
		p.application(ctx, "private/"+p.project, private("git"), autoBuild)
		Expect(p.run(ctx, pushed(ctx, p, commit).Status.BuiltImage.Reference)).To(Equal("first"))
		commit = newRepository(ctx, "private/"+p.project, map[string]string{"Dockerfile": hello, "text": "second"})
		Expect(p.run(ctx, pushed(ctx, p, commit).Status.BuiltImage.Reference)).To(Equal("second"))
	}, SpecTimeout(2*buildLimit))

	It("is announced by a webhook, and is built in little more than the time of its run", func(ctx SpecContext) {
		pod := installReceiver(ctx)
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "first"})
		a := p.application(ctx, "public/"+p.project, autoBuild)
		expect.Becomes(ctx, a, func(g Gomega) {
			g.Expect(a.Status.AutoBuild).NotTo(BeNil())
			g.Expect(a.Status.AutoBuild.WebhookSecret).NotTo(BeEmpty())
		})
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: a.Status.AutoBuild.WebhookSecret}}
		Expect(world.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		address := "http://" + world.Forward(client.ObjectKeyFromObject(pod), 8080) + strings.TrimPrefix(a.Status.AutoBuild.WebhookURL, "http://pushes.example.org")
		send := func(key string) int {
			const body = `{"ref":"refs/heads/main"}`
			mac := hmac.New(sha256.New, []byte(key))
			_, _ = io.WriteString(mac, body)
			q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
			Expect(err).NotTo(HaveOccurred())
			q.Header.Set("X-Forgejo-Signature", hex.EncodeToString(mac.Sum(nil)))
			q.Header.Set("X-Forgejo-Event", "push")
			answer, err := http.DefaultClient.Do(q)
			Expect(err).NotTo(HaveOccurred())
			_ = answer.Body.Close()
			return answer.StatusCode
		}
		Expect(send("forged")).To(Equal(http.StatusUnauthorized))

		// PUSH_ROUNDS are for measurements, of which the medians count.
		rounds, _ := strconv.Atoi(os.Getenv("PUSH_ROUNDS"))
		var all, bare []time.Duration
		for round := range max(rounds, 1) {
			text := fmt.Sprintf("%d after", round)
			commit := newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": text})
			begun := time.Now()
			Expect(send(string(secret.Data["secret"]))).To(Equal(http.StatusAccepted))
			d := pushed(ctx, p, commit)
			all = append(all, time.Since(begun))
			bare = append(bare, p.runBare(ctx, d.Status.CurrentPipelineRun.Name, round))
			Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal(text))
			AddReportEntry("push", fmt.Sprintf("from the push to the image %s, a bare run %s", all[round], bare[round]))
		}
		ours, theirs := median(all), median(bare)
		AddReportEntry("push, medians", fmt.Sprintf("from the push to the image %s, a bare run %s", ours, theirs))
		limit := time.Duration(float64(theirs)*share) + slack
		if rounds == 0 {
			limit *= 2 // once, on a machine that has other work
		}
		Expect(ours).To(BeNumerically("<=", limit))
	}, SpecTimeout(5*buildLimit))
})

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }

// runBare has Tekton run the Pipeline of a run once more, without the operator, and returns how long that takes. It copies the Pipeline:
// a run that names it would get its labels, and the operator would cancel a run of its Deployment.
func (p platform) runBare(ctx context.Context, name string, round int) time.Duration {
	GinkgoHelper()
	read := func(kind, name string) map[string]any {
		GinkgoHelper()
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tekton.dev/v1", "kind": kind}}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, u)).To(Succeed())
		return u.Object["spec"].(map[string]any)
	}
	spec := read("PipelineRun", name)
	spec["pipelineSpec"] = read("Pipeline", spec["pipelineRef"].(map[string]any)["name"].(string))
	delete(spec, "pipelineRef")
	run := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "spec": spec,
		"metadata": map[string]any{"namespace": p.namespace, "name": fmt.Sprintf("bare-%d", round)},
	}}
	begun := time.Now()
	Expect(world.Create(ctx, run)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(world.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(run.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		if slices.ContainsFunc(conditions, func(c any) bool { return c.(map[string]any)["status"] == "False" }) {
			StopTrying(fmt.Sprint(conditions)).Now()
		}
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Succeeded"), HaveKeyWithValue("status", "True"))))
	}).WithContext(ctx).WithTimeout(buildLimit).WithPolling(100 * time.Millisecond).Should(Succeed())
	return time.Since(begun)
}

// installReceiver installs config/kibaship/pushes with the operator's image until the spec ends, and returns a pod of it.
func installReceiver(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	kubectl := func(ctx context.Context, args ...string) {
		GinkgoHelper()
		command := exec.CommandContext(ctx, "kubectl", args...)
		command.Stdout, command.Stderr, command.Env = GinkgoWriter, GinkgoWriter, os.Environ()
		Expect(command.Run()).To(Succeed())
	}
	const folder = "../../../config/kibaship/pushes"
	operators, err := world.OperatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(operators).NotTo(BeEmpty())
	namespace := world.Operator.Namespace
	kubectl(ctx, "apply", "--server-side", "-k", folder)
	DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "delete", "-k", folder) }, NodeTimeout(deployed.DeleteLimit))
	kubectl(ctx, "-n", namespace, "set", "image", "deployment/kibaship-pushes", "receiver="+operators[0].Spec.Containers[0].Image)
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		program := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kibaship-pushes"}}
		g.Expect(world.Get(ctx, client.ObjectKeyFromObject(program), program)).To(Succeed())
		g.Expect(program.Status.ObservedGeneration).To(Equal(program.Generation))
		g.Expect(program.Status.UpdatedReplicas).To(Equal(program.Status.Replicas))
		pods, err := world.Pods(ctx, namespace, client.MatchingLabels{"app.kubernetes.io/name": "kibaship-pushes"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).NotTo(BeEmpty())
		for i := range pods {
			g.Expect(deployed.PodReady(&pods[i])).To(BeTrue())
		}
		pod = &pods[0]
	}).WithContext(ctx).WithTimeout(deployed.StartLimit).Should(Succeed())
	return pod
}
