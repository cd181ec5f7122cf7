package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/operator"
)

var _ = Describe("The operator", func() {
	It("runs as a restricted pod that is alive and ready", func(ctx SpecContext) {
		var pod *corev1.Pod
		until(ctx, startLimit, func(ctx context.Context) (err error) {
			if pod, err = world.leader(ctx); err != nil {
				return err
			}
			return not(!podReady(pod), "the operator's pod is not ready")
		})
		namespace := &corev1.Namespace{}
		Expect(world.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)).To(Succeed())
		Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
		Expect(pod.Spec.Containers).To(HaveLen(1))
		manager := pod.Spec.Containers[0]
		Expect(manager.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(manager.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(pod.Spec.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))

		probes := world.forward(client.ObjectKeyFromObject(pod), 8081)
		for _, path := range []string{"/healthz", "/readyz"} {
			status, body := get(ctx, http.DefaultClient, "http://"+probes+path, "")
			Expect(status).To(Equal(http.StatusOK), "%s: %s", path, body)
		}
	}, SpecTimeout(specLimit))

	It("holds the lease", func(ctx SpecContext) {
		until(ctx, startLimit, expectLease)
	}, SpecTimeout(specLimit))

	It("shows its metrics only to those who may read them", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.runToolbox(ctx)

		allowed, refused := stage.serviceAccount(ctx, "prometheus"), stage.serviceAccount(ctx, "stranger")
		stage.bindClusterRole(ctx, world.clusterRole(ctx, "metrics-reader"), "prometheus")

		pod, err := world.leader(ctx)
		Expect(err).NotTo(HaveOccurred())
		url := "https://" + world.forward(client.ObjectKeyFromObject(pod), 8443) + "/metrics"
		// The certificate is the operator's own; nobody could have been told of it.
		insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		DeferCleanup(insecure.CloseIdleConnections)

		status, _ := get(ctx, insecure, url, "")
		Expect(status).To(Equal(http.StatusUnauthorized), "without a token")
		status, _ = get(ctx, insecure, url, refused)
		Expect(status).To(Equal(http.StatusForbidden), "with a token that may not read metrics")
		status, body := get(ctx, insecure, url, allowed)
		Expect(status).To(Equal(http.StatusOK), "with a token of the role metrics-reader")

		Expect(body).To(ContainSubstring(`berg_challengeinstance_total{challenge="toolbox"}`))
		Expect(body).To(MatchRegexp(`berg_challengeinstance_active\{.*phase="Running".*\} [1-9]`))
		Expect(body).To(ContainSubstring("berg_challengeinstance_reconcile_duration_seconds_count"))
		Expect(strings.Contains(body, told.flag)).To(BeFalse(), "the metrics tell a flag")
		Expect(strings.Contains(body, told.ownerID)).To(BeFalse(), "the metrics tell an owner")
	}, SpecTimeout(specLimit))

	DescribeTable("may not do what it does not need", func(ctx SpecContext, attributes authorizationv1.ResourceAttributes) {
		deployment := &appsv1.Deployment{}
		Expect(world.Get(ctx, world.operator, deployment)).To(Succeed())
		account := deployment.Spec.Template.Spec.ServiceAccountName
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + world.operator.Namespace + ":" + account,
			Groups:             []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		Expect(world.Create(ctx, review)).To(Succeed())
		Expect(review.Status.Allowed).To(BeFalse(), "%s %s: %s", attributes.Verb, attributes.Resource, review.Status.Reason)
	},
		entry("read Secrets of the cluster", authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "kube-system"}),
		entry("list Secrets everywhere", authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"}),
		entry("enter pods", authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "kube-system"}),
		entry("create pods", authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "kube-system"}),
		entry("change Challenges", authorizationv1.ResourceAttributes{Verb: "update", Group: bergv1.GroupVersion.Group, Resource: "challenges", Namespace: "berg"}),
		entry("create instances", authorizationv1.ResourceAttributes{Verb: "create", Group: bergv1.GroupVersion.Group, Resource: "challengeinstances", Namespace: "berg"}),
		entry("bind another role", authorizationv1.ResourceAttributes{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "cluster-admin"}),
		entry("change the role that it may bind", authorizationv1.ResourceAttributes{Verb: "update", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "quix-platform-account-role"}),
		entry("impersonate", authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "users"}),
		entry("create environments", authorizationv1.ResourceAttributes{Verb: "create", Group: quixv1.GroupVersion.Group, Resource: "environments"}),
		entry("bind roles in the whole cluster", authorizationv1.ResourceAttributes{Verb: "create", Group: rbacv1.GroupName, Resource: "clusterrolebindings"}),
	)

	It("keeps within a memory limit that is near", Serial, func(ctx SpecContext) {
		deployment := &appsv1.Deployment{}
		Expect(world.Get(ctx, world.operator, deployment)).To(Succeed())
		usual := deployment.Spec.Template.Spec.Containers[0].Resources
		memory := func(ctx context.Context, request, limit string) {
			changeManager(ctx, fmt.Sprintf(`"resources":{"requests":{"memory":%q},"limits":{"memory":%q}}`, request, limit))
		}
		DeferCleanup(func(ctx SpecContext) { memory(ctx, usual.Requests.Memory().String(), usual.Limits.Memory().String()) }, NodeTimeout(2*startLimit))
		memory(ctx, "32Mi", "64Mi")

		stage := newStage(ctx)
		stage.challenge(ctx, "toolbox", toolbox("only"))
		var stories []*story
		for range 10 {
			stories = append(stories, stage.start(ctx, stage.instance("toolbox")))
		}
		for _, told := range stories {
			told.expectPhase(ctx, 2*startLimit, bergv1.PhaseRunning)
		}
		expectNoRestart(ctx)
		pod, err := world.leader(ctx)
		Expect(err).NotTo(HaveOccurred())
		metrics := stage.metrics(ctx, pod)
		Expect(metrics).To(MatchRegexp(`(?m)^go_gc_gomemlimit_bytes 6\.0397977e\+07$`), "nine tenths")
		AddReportEntry("memory", regexp.MustCompile(`(?m)^(process_resident_memory_bytes|go_memstats_heap_inuse_bytes) .*$`).FindAllString(metrics, -1))
	}, SpecTimeout(specLimit))

	Describe("when it is lost", Serial, func() {
		It("finishes what it was building", func(ctx SpecContext) {
			stage := newStage(ctx)
			stage.challenge(ctx, "toolbox", toolbox("first"), toolbox("second"))
			var stories []*story
			for range 5 {
				stories = append(stories, stage.start(ctx, stage.instance("toolbox")))
			}
			stories[0].expect(ctx, reactLimit, "instance ID", func(m moment) bool { return m.instance.Status.InstanceID != "" })

			pod, err := world.leader(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(world.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())

			for _, told := range stories {
				running := told.expectPhase(ctx, 2*startLimit, bergv1.PhaseRunning)
				for _, m := range told.told() {
					if id := m.instance.Status.InstanceID; id != "" {
						Expect(id).To(Equal(running.Status.InstanceID), "the instance ID of %s changed", told.key)
					}
				}
			}
			until(ctx, startLimit, expectLease)
		}, SpecTimeout(specLimit))

		It("ends at once what expired in the meantime", func(ctx SpecContext) {
			stage := newStage(ctx)
			told := stage.runToolbox(ctx)

			DeferCleanup(func(ctx SpecContext) { scaleOperator(ctx, replicas) }, NodeTimeout(startLimit))
			scaleOperator(ctx, 0)
			started := told.now().Status.StartedAt.Time
			told.patch(ctx, `{"timeout":"%ds"}`, int(time.Since(started).Seconds())+1)
			Consistently(ctx, told.now).WithTimeout(3*time.Second).Should(HaveField("DeletionTimestamp", BeNil()),
				"somebody else than the operator ended the instance")
			scaleOperator(ctx, replicas)

			told.expectEnd(ctx)
			Expect(told.now().Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
		}, SpecTimeout(specLimit))
	})
})

// expectLease is an error unless one of the operator's pods holds a fresh lease.
func expectLease(ctx context.Context) error {
	if _, err := world.leader(ctx); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	if err := world.Get(ctx, client.ObjectKey{Namespace: world.operator.Namespace, Name: operator.LeaseName}, lease); err != nil {
		return err
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if age := time.Since(lease.Spec.RenewTime.Time); age > duration {
		return fmt.Errorf("the lease was renewed %s ago and holds for %s", age, duration)
	}
	return nil
}

// replicas is how many pods the operator is installed with.
const replicas = 2

// scaleOperator changes the number of the operator's pods and waits until the
// cluster is there.
func scaleOperator(ctx context.Context, count int32) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: world.operator.Namespace, Name: world.operator.Name}}
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, count)
	Expect(world.Patch(ctx, deployment, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	until(ctx, startLimit, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := world.List(ctx, &pods, client.InNamespace(world.operator.Namespace), operatorLabels); err != nil {
			return err
		}
		ready := 0
		for _, pod := range pods.Items {
			if podReady(&pod) {
				ready++
			}
		}
		if len(pods.Items) != int(count) || ready != int(count) {
			return fmt.Errorf("the operator has %d pods, %d of them ready, want %d", len(pods.Items), ready, count)
		}
		return nil
	})
}

// clusterRole returns the name of the operator's ClusterRole that ends like that.
func (c *cluster) clusterRole(ctx context.Context, suffix string) string {
	GinkgoHelper()
	var roles rbacv1.ClusterRoleList
	Expect(c.List(ctx, &roles, client.MatchingLabels{"app.kubernetes.io/name": "berg-operator"})).To(Succeed())
	for _, role := range roles.Items {
		if strings.HasSuffix(role.Name, suffix) {
			return role.Name
		}
	}
	Fail("the operator brings no ClusterRole " + suffix)
	return ""
}

// metrics reads what a pod of the operator tells Prometheus.
func (s *stage) metrics(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	token := s.serviceAccount(ctx, "prometheus")
	s.bindClusterRole(ctx, world.clusterRole(ctx, "metrics-reader"), "prometheus")
	// The certificate is the operator's own; nobody could have been told of it.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	DeferCleanup(insecure.CloseIdleConnections)
	status, body := get(ctx, insecure, "https://"+world.forward(client.ObjectKeyFromObject(pod), 8443)+"/metrics", token)
	Expect(status).To(Equal(http.StatusOK))
	return body
}

// serviceAccount creates a ServiceAccount and returns a token of it.
func (s *stage) serviceAccount(ctx context.Context, name string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	Expect(world.Create(ctx, account)).To(Succeed())
	token := &authenticationv1.TokenRequest{}
	Expect(world.SubResource("token").Create(ctx, account, token)).To(Succeed())
	return token.Status.Token
}

func (s *stage) bindClusterRole(ctx context.Context, role, account string) {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.namespace}},
	}
	Expect(world.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, binding)).To(Succeed()) }, NodeTimeout(reactLimit))
}

// get returns status and body of an answer.
func get(ctx context.Context, with *http.Client, url, token string) (int, string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := with.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}
