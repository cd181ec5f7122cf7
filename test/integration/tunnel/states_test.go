package tunnel

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// silent is a registry that answers pings. Requests for images wait until speak is called, and then find none.
func silent() (host string, speak func()) {
	GinkgoHelper()
	until := make(chan struct{})
	spoken := false
	speak = func() {
		if !spoken {
			spoken = true
			close(until)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		select {
		case <-until:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	DeferCleanup(func() {
		speak()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://"), speak
}

var _ = Describe("A pair that waits", func() {
	It("continues when its network appears", func(ctx context.Context) {
		n := tunneltest.NewNetwork()
		p := tunneltest.Proxy(ctx, n.Name, tunneltest.To("web", tunneltest.NewEcho(0).Port))
		expect.Shows(ctx, p, tunnelv1.ConditionNetworkReady, "False", tunnelv1.ReasonNetworkNotFound)
		Expect(k8s.Create(ctx, n)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			tunneltest.Delete(ctx, p)
			tunneltest.Delete(ctx, n)
		})
		tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
		through(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).ClientProxyPort)
	})

	It("for its image is deleted after the build in progress, and leaves nothing", func(ctx context.Context) {
		host, speak := silent()
		inprocess.Restart(map[string]string{
			"TUNNEL_IMAGE": "", "TUNNEL_REGISTRY": host, "TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_BASE_IMAGE": host + "/base:1",
		}, nil)
		p := tunneltest.Proxy(ctx, tunneltest.Network(ctx).Name)
		tunneltest.Reaches(ctx, p, tunnelv1.StateBuildingImage)
		Expect(k8s.Delete(ctx, p)).To(Succeed())
		expect.Shows(ctx, p, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonTerminating)
		Expect(p.Status.Message).To(ContainSubstring("operation in progress"))
		speak()
		expect.Gone(ctx, p)
		Eventually(func() []string { return leftOf(ctx, p) }).Should(BeEmpty())
	})

	It("for its image continues after the operator was killed, and is deleted after it was killed again", func(ctx context.Context) {
		host, _ := silent()
		env := inprocess.With(map[string]string{
			"TUNNEL_IMAGE": "", "TUNNEL_REGISTRY": host, "TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_BASE_IMAGE": host + "/base:1",
		})
		stop := inprocess.Instead(clock.RealClock{}, env, nil)
		p := tunneltest.Proxy(ctx, tunneltest.Network(ctx).Name, tunneltest.To("web", tunneltest.NewEcho(0).Port))
		tunneltest.Reaches(ctx, p, tunnelv1.StateBuildingImage)
		doomed := tunneltest.Proxy(ctx, p.Spec.ContainerNetworkName)
		tunneltest.Reaches(ctx, doomed, tunnelv1.StateBuildingImage)
		Expect(k8s.Delete(ctx, doomed)).To(Succeed())
		stop()
		// The operator that all specs share has a ready image.
		inprocess.Pause()()
		goneWithAll(ctx, doomed)
		tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
		through(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).ClientProxyPort)
	})

	It("for the registry to answer is Pending, and a deletion does not wait for it", func(ctx context.Context) {
		until := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-until:
			case <-r.Context().Done():
			}
		}))
		DeferCleanup(func() {
			close(until)
			server.Close()
		})
		host := strings.TrimPrefix(server.URL, "http://")
		inprocess.Restart(map[string]string{
			"TUNNEL_IMAGE": "", "TUNNEL_REGISTRY": host, "TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_BASE_IMAGE": host + "/base:1", "TUNNEL_CALL_TIMEOUT": "2s",
		}, nil)
		p := tunneltest.Proxy(ctx, tunneltest.Network(ctx).Name)
		expect.Shows(ctx, p, tunnelv1.ConditionImageReady, "False", tunnelv1.ReasonRegistryNotReady)
		Expect(p.Status.State).To(Equal(tunnelv1.StatePending))
		Expect(p.Status.Message).To(And(ContainSubstring(host), ContainSubstring("TUNNEL_REGISTRY")))
		goneWithAll(ctx, p)
	})

	It("for the Secret of the nodes reports it, and continues when that is created", func(ctx context.Context) {
		secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}}
		secret.Namespace, secret.Name = installed.Namespace, "tunnel-registry-late"
		inprocess.Restart(map[string]string{"TUNNEL_PULL_SECRET": secret.Name}, nil)
		p := tunneltest.Proxy(ctx, tunneltest.Network(ctx).Name, tunneltest.To("web", tunneltest.NewEcho(0).Port))
		expect.Shows(ctx, p, tunnelv1.ConditionImageReady, "False", tunnelv1.ReasonImageRetried)
		Expect(p.Status.Message).To(And(ContainSubstring("TUNNEL_PULL_SECRET"), ContainSubstring(secret.Namespace+"/"+secret.Name)))
		apiserver.Create(ctx, secret)
		tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
		through(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).ClientProxyPort)
	})

	It("for its pod becomes Failed after TUNNEL_START_TIMEOUT, and leaves nothing", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"TUNNEL_START_TIMEOUT": "4s"}, nil)
		kubelet.Hold()
		p := tunneltest.Proxy(ctx, tunneltest.Network(ctx).Name, tunneltest.To("web", 80))
		tunneltest.Reaches(ctx, p, tunnelv1.StateStarting)
		tunneltest.Reaches(ctx, p, tunnelv1.StateFailed)
		Expect(p.Status.Message).To(ContainSubstring("TUNNEL_START_TIMEOUT"))
		Expect(p.Status.TunnelStatuses).To(HaveLen(1))
		Expect(p.Status.TunnelStatuses[0].State).To(Equal(tunnelv1.TunnelFailed))
		Eventually(func() []string { return leftOf(ctx, p) }).Should(BeEmpty())

		By("a change of its tunnels is observed, and changes nothing else")
		message := p.Status.Message
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunneltest.To("more", 81))
		})
		Expect(tunneltest.Tunnel(ctx, p, "more", tunnelv1.TunnelFailed).ErrorMessage).NotTo(BeEmpty())
		Expect(p.Status.State).To(Equal(tunnelv1.StateFailed))
		Expect(p.Status.Message).To(Equal(message))
	})
})

var _ = Describe("An operator without rights in its own namespace", Serial, func() {
	It("reports it, continues when it has them, and completes deletions when they are removed", func(ctx context.Context) {
		may := func(ctx context.Context, verb string) func() bool {
			return func() bool {
				return apiserver.May(ctx, apiserver.OperatorUser, authorizationv1.ResourceAttributes{Namespace: installed.Namespace, Verb: verb, Resource: "secrets"})
			}
		}
		give := func(ctx context.Context) {
			GinkgoHelper()
			Expect(installed.Definitions(ctx, k8s, "integration")).To(Succeed())
			Expect(installed.Folder(ctx, k8s, "config/tunnel/host", "integration")).To(Succeed())
			Eventually(may(ctx, "delete")).Should(BeTrue())
		}
		n := tunneltest.Network(ctx)
		DeferCleanup(give)
		// The rights of other families for Secrets there are removed too.
		Expect(k8s.DeleteAllOf(ctx, &rbacv1.RoleBinding{}, client.InNamespace(installed.Namespace))).To(Succeed())
		Eventually(may(ctx, "get")).Should(BeFalse())
		p := tunneltest.Proxy(ctx, n.Name, tunneltest.To("web", tunneltest.NewEcho(0).Port))
		expect.Shows(ctx, p, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonHostRightsMissing)
		Expect(p.Status.Message).To(And(ContainSubstring("config/tunnel/host"), ContainSubstring(installed.Namespace)))
		Expect(p.Status.State).To(Equal(tunnelv1.StatePending))
		give(ctx)
		tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
		through(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).ClientProxyPort)

		By("rights to read Secrets, and none to delete them")
		reader := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "secret-reader"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		}}
		Expect(k8s.Create(ctx, reader)).To(Succeed())
		DeferCleanup(k8s.Delete, reader)
		Expect(k8s.DeleteAllOf(ctx, &rbacv1.RoleBinding{}, client.InNamespace(installed.Namespace))).To(Succeed())
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: reader.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: reader.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: apiserver.OperatorUser}},
		}
		Expect(k8s.Create(ctx, binding)).To(Succeed())
		DeferCleanup(k8s.Delete, binding)
		Eventually(may(ctx, "delete")).Should(BeFalse())
		Eventually(may(ctx, "get")).Should(BeTrue())
		goneWithAll(ctx, p) // they go with their owner
	})
})

var _ = Describe("Certificates of a pair", Serial, func() {
	It("are renewed before they expire, without interrupting streams", func(ctx context.Context) {
		// Certificates are renewed after two thirds of it.
		const lifetime = 30 * time.Second
		inprocess.Restart(map[string]string{"TUNNEL_CERTIFICATE_LIFETIME": lifetime.String()}, nil)
		p, _ := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		live, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(web.ClientProxyPort))))
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = live.Close() }()
		Expect(tunneltest.Exchange(live, "before")).To(Equal("before"))

		ends := func() (all []time.Time) {
			secrets := apiserver.List[corev1.SecretList](ctx, client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID)})
			for _, s := range secrets.Items {
				block, _ := pem.Decode(s.Data[corev1.TLSCertKey])
				Expect(block).NotTo(BeNil(), s.Name)
				certificate, err := x509.ParseCertificate(block.Bytes)
				Expect(err).NotTo(HaveOccurred())
				all = append(all, certificate.NotAfter)
			}
			return all
		}
		former := ends()
		Expect(former).To(HaveLen(3), "of the operator, and of each proxy")
		last := former[0]
		for _, end := range former {
			if end.After(last) {
				last = end
			}
		}
		// During the renewals streams continue, new ones are made, and the operator calls.
		for time.Now().Before(last.Add(2 * time.Second)) {
			Expect(tunneltest.Exchange(live, "in between")).To(Equal("in between"))
			answer, err := tunneltest.Ask(web.ClientProxyPort, "hello")
			Expect(err).NotTo(HaveOccurred())
			Expect(answer).To(Equal("hello"))
		}
		for _, end := range ends() {
			Expect(end).To(BeTemporally(">", last))
		}
		Expect(tunneltest.Exchange(live, "after")).To(Equal("after"))
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunneltest.To("more", s.Tunnels[0].ServerPort))
		})
		through(tunneltest.Tunnel(ctx, p, "more", tunnelv1.TunnelReady).ClientProxyPort)
		Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)).To(Equal(web))
	})
})

var _ = Describe("Many pairs, one after the other,", Serial, func() {
	It("leave no goroutines and no open files in the operator", func(ctx context.Context) {
		n := tunneltest.Network(ctx)
		echo := tunneltest.NewEcho(0)
		life := func() {
			p := tunneltest.NewProxy(n.Name, tunneltest.To("web", echo.Port))
			Expect(k8s.Create(ctx, p)).To(Succeed())
			through(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).ClientProxyPort)
			goneWithAll(ctx, p)
		}
		files := func() int {
			all, err := os.ReadDir("/proc/self/fd")
			Expect(err).NotTo(HaveOccurred())
			return len(all)
		}
		life() // allocates what is made only once
		goroutines, open := runtime.NumGoroutine(), files()
		const lives = 10
		for range lives {
			life()
		}
		// Less than one for each.
		Eventually(runtime.NumGoroutine).Should(BeNumerically("<", goroutines+lives/2))
		Eventually(files).Should(BeNumerically("<", open+lives/2))
	})
})
