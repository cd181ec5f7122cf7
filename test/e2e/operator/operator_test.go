package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

var _ = Describe("The operator", func() {
	It("runs as a restricted pod that is alive and ready", func(ctx SpecContext) {
		var pod *corev1.Pod
		expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) (err error) {
			if pod, err = world.Leader(ctx); err != nil {
				return err
			}
			return deployed.ErrorIf(!deployed.PodReady(pod), "the operator's pod is not ready")
		})
		namespace := &corev1.Namespace{}
		Expect(world.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)).To(Succeed())
		Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/warn", "restricted"))
		Expect(pod.Spec.Containers).To(HaveLen(1))
		manager := pod.Spec.Containers[0]
		Expect(manager.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(manager.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(pod.Spec.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))

		probes := world.Forward(client.ObjectKeyFromObject(pod), 8081)
		for _, path := range []string{"/healthz", "/readyz"} {
			status, body := deployed.Get(ctx, http.DefaultClient, "http://"+probes+path, "")
			Expect(status).To(Equal(http.StatusOK), "%s: %s", path, body)
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("holds the lease", func(ctx SpecContext) {
		expect.Until(ctx, deployed.StartLimit, deployed.ExpectLease)
	}, SpecTimeout(deployed.SpecLimit))

	It("shows its metrics only to those who may read them", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		story := stage.RunToolbox(ctx)

		allowed, refused := deployed.ServiceAccount(ctx, stage.Namespace, "prometheus"), deployed.ServiceAccount(ctx, stage.Namespace, "stranger")
		deployed.BindClusterRole(ctx, deployed.MetricsReader(ctx), stage.Namespace, "prometheus")

		pod, err := world.Leader(ctx)
		Expect(err).NotTo(HaveOccurred())
		url := "https://" + world.Forward(client.ObjectKeyFromObject(pod), 8443) + "/metrics"
		// The certificate is the operator's own; no client can know it in advance.
		insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		DeferCleanup(insecure.CloseIdleConnections)

		status, _ := deployed.Get(ctx, insecure, url, "")
		Expect(status).To(Equal(http.StatusUnauthorized), "without a token")
		status, _ = deployed.Get(ctx, insecure, url, refused)
		Expect(status).To(Equal(http.StatusForbidden), "with a token that may not read metrics")
		status, body := deployed.Get(ctx, insecure, url, allowed)
		Expect(status).To(Equal(http.StatusOK), "with a token of the role metrics-reader")

		Expect(body).To(ContainSubstring(`berg_challengeinstance_total{challenge="toolbox"}`))
		Expect(body).To(MatchRegexp(`berg_challengeinstance_active\{.*phase="Running".*\} [1-9]`))
		Expect(body).To(ContainSubstring("berg_challengeinstance_reconcile_duration_seconds_count"))
		Expect(strings.Contains(body, story.Flag)).To(BeFalse(), "the metrics tell a flag")
		Expect(strings.Contains(body, story.OwnerID)).To(BeFalse(), "the metrics tell an owner")
	}, SpecTimeout(deployed.SpecLimit))

	DescribeTable("may not do what it does not need", func(ctx SpecContext, attributes authorizationv1.ResourceAttributes) {
		deployment := &appsv1.Deployment{}
		Expect(world.Get(ctx, world.Operator, deployment)).To(Succeed())
		account := deployment.Spec.Template.Spec.ServiceAccountName
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + world.Operator.Namespace + ":" + account,
			Groups:             []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		Expect(world.Create(ctx, review)).To(Succeed())
		Expect(review.Status.Allowed).To(BeFalse(), "%s %s: %s", attributes.Verb, attributes.Resource, review.Status.Reason)
	},
		deployed.SpecEntry("read Secrets of the cluster", authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "kube-system"}),
		deployed.SpecEntry("list Secrets everywhere", authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"}),
		deployed.SpecEntry("enter pods", authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "kube-system"}),
		deployed.SpecEntry("create pods", authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "kube-system"}),
		deployed.SpecEntry("change Challenges", authorizationv1.ResourceAttributes{Verb: "update", Group: bergv1.GroupVersion.Group, Resource: "challenges", Namespace: "berg"}),
		deployed.SpecEntry("create instances", authorizationv1.ResourceAttributes{Verb: "create", Group: bergv1.GroupVersion.Group, Resource: "challengeinstances", Namespace: "berg"}),
		deployed.SpecEntry("bind another role", authorizationv1.ResourceAttributes{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "cluster-admin"}),
		deployed.SpecEntry("change the role that it may bind", authorizationv1.ResourceAttributes{Verb: "update", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "quix-platform-account-role"}),
		deployed.SpecEntry("impersonate", authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "users"}),
		deployed.SpecEntry("create environments", authorizationv1.ResourceAttributes{Verb: "create", Group: quixv1.GroupVersion.Group, Resource: "environments"}),
		deployed.SpecEntry("bind roles in the whole cluster", authorizationv1.ResourceAttributes{Verb: "create", Group: rbacv1.GroupName, Resource: "clusterrolebindings"}),
	)

	It("keeps within a memory limit that is near", Serial, func(ctx SpecContext) {
		deployment := &appsv1.Deployment{}
		Expect(world.Get(ctx, world.Operator, deployment)).To(Succeed())
		usual := deployment.Spec.Template.Spec.Containers[0].Resources
		memory := func(ctx context.Context, request, limit string) {
			deployed.ChangeManager(ctx, fmt.Sprintf(`"resources":{"requests":{"memory":%q},"limits":{"memory":%q}}`, request, limit))
		}
		DeferCleanup(func(ctx SpecContext) { memory(ctx, usual.Requests.Memory().String(), usual.Limits.Memory().String()) }, NodeTimeout(2*deployed.StartLimit))
		memory(ctx, "32Mi", "64Mi")

		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "toolbox", journey.Toolbox("only"))
		var stories []*journey.Story
		for range 10 {
			stories = append(stories, stage.Start(ctx, stage.Instance("toolbox")))
		}
		for _, story := range stories {
			story.ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning)
		}
		deployed.ExpectNoRestart(ctx)
		pod, err := world.Leader(ctx)
		Expect(err).NotTo(HaveOccurred())
		metrics := deployed.Metrics(ctx, stage.Namespace, pod)
		Expect(metrics).To(MatchRegexp(`(?m)^go_gc_gomemlimit_bytes 6\.0397977e\+07$`), "nine tenths")
		AddReportEntry("memory", regexp.MustCompile(`(?m)^(process_resident_memory_bytes|go_memstats_heap_inuse_bytes) .*$`).FindAllString(metrics, -1))
	}, SpecTimeout(deployed.SpecLimit))

	Describe("when it is lost", Serial, func() {
		It("finishes what it was building", func(ctx SpecContext) {
			stage := journey.NewStage(ctx)
			stage.Challenge(ctx, "toolbox", journey.Toolbox("first"), journey.Toolbox("second"))
			var stories []*journey.Story
			for range 5 {
				stories = append(stories, stage.Start(ctx, stage.Instance("toolbox")))
			}
			stories[0].Expect(ctx, deployed.ReactLimit, "instance ID", func(m journey.Moment) bool { return m.Instance.Status.InstanceID != "" })

			pod, err := world.Leader(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(world.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())

			for _, story := range stories {
				running := story.ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning)
				for _, m := range story.Moments() {
					if id := m.Instance.Status.InstanceID; id != "" {
						Expect(id).To(Equal(running.Status.InstanceID), "the instance ID of %s changed", story.Key)
					}
				}
			}
			expect.Until(ctx, deployed.StartLimit, deployed.ExpectLease)
		}, SpecTimeout(deployed.SpecLimit))

		It("deletes immediately what expired in the meantime", func(ctx SpecContext) {
			stage := journey.NewStage(ctx)
			story := stage.RunToolbox(ctx)

			DeferCleanup(func(ctx SpecContext) { scaleOperator(ctx, replicas) }, NodeTimeout(deployed.StartLimit))
			scaleOperator(ctx, 0)
			started := story.Now().Status.StartedAt.Time
			story.Patch(ctx, `{"timeout":"%ds"}`, int(time.Since(started).Seconds())+1)
			Consistently(ctx, story.Now).WithTimeout(3*time.Second).Should(HaveField("DeletionTimestamp", BeNil()),
				"another client than the operator deleted the instance")
			scaleOperator(ctx, replicas)

			story.ExpectEnd(ctx)
			Expect(story.Now().Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
		}, SpecTimeout(deployed.SpecLimit))
	})
})

// replicas is how many pods the operator is installed with.
const replicas = 2

// scaleOperator changes the number of the operator's pods and waits until the
// cluster is there.
func scaleOperator(ctx context.Context, count int32) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: world.Operator.Namespace, Name: world.Operator.Name}}
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, count)
	Expect(world.Patch(ctx, deployment, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := world.List(ctx, &pods, client.InNamespace(world.Operator.Namespace), deployed.OperatorLabels); err != nil {
			return err
		}
		ready := 0
		for _, pod := range pods.Items {
			if deployed.PodReady(&pod) {
				ready++
			}
		}
		if len(pods.Items) != int(count) || ready != int(count) {
			return fmt.Errorf("the operator has %d pods, %d of them ready, want %d", len(pods.Items), ready, count)
		}
		return nil
	})
}
