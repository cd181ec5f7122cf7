package tunnel

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

var _ = Describe("The image of the proxies", func() {
	It("is built from a base, and rebuilt only when that has changed; without a base the pair becomes Failed", func(ctx context.Context) {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		DeferCleanup(server.Close)
		host := strings.TrimPrefix(server.URL, "http://")
		base := host + "/base:1"
		push(base)
		inprocess.Restart(map[string]string{
			"TUNNEL_IMAGE": "", "TUNNEL_REGISTRY": host, "TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_BASE_IMAGE": base,
		}, nil)
		n := tunneltest.Network(ctx)
		made := func() string {
			p := tunneltest.Proxy(ctx, n.Name)
			tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
			Expect(p.Status.ClientProxyContainerImage).To(HavePrefix(host + "/dcptun_developer_ms@sha256:"))
			image := p.Status.ClientProxyContainerImage
			goneWithAll(ctx, p)
			return image
		}
		first := made()
		Expect(made()).To(Equal(first), "it is there")
		push(base)
		Expect(made()).NotTo(Equal(first), "its base has moved")

		p := tunneltest.NewProxy(n.Name)
		p.Spec.BaseImage = host + "/missing:1"
		tunneltest.Create(ctx, p)
		tunneltest.Reaches(ctx, p, tunnelv1.StateFailed)
		Expect(p.Status.Message).To(ContainSubstring("/missing:1"))
		expect.Shows(ctx, p, tunnelv1.ConditionImageReady, "False", tunnelv1.ReasonImageFailed)

		By("a registry that does not answer is asked again, and a deletion does not wait for it")
		server.Close()
		p = tunneltest.Proxy(ctx, n.Name)
		expect.Shows(ctx, p, tunnelv1.ConditionImageReady, "False", tunnelv1.ReasonRegistryNotReady)
		Expect(p.Status.State).To(Equal(tunnelv1.StatePending))
		goneWithAll(ctx, p)
	})

	It("is pushed to a registry with TLS and a login, which is copied for nodes", func(ctx context.Context) {
		const user, password = "tunnels", "a password that stays secret"
		images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			images.ServeHTTP(w, r)
		}))
		DeferCleanup(server.Close)
		host := strings.TrimPrefix(server.URL, "https://")
		authority := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)).To(Succeed())
		push(host+"/base:1", remote.WithTransport(server.Client().Transport), remote.WithAuth(&authn.Basic{Username: user, Password: password}))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "tunnel-registry"}, Type: corev1.SecretTypeDockerConfigJson}
		login := func(password string) []byte {
			return fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q}}}`, host, user, password)
		}
		secret.Data = map[string][]byte{corev1.DockerConfigJsonKey: login("wrong")}
		apiserver.Create(ctx, secret)
		reads := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "tunnel-nodes"}, Type: corev1.SecretTypeDockerConfigJson}
		reads.Data = map[string][]byte{corev1.DockerConfigJsonKey: login("of the nodes")}
		apiserver.Create(ctx, reads)
		inprocess.Restart(map[string]string{
			"TUNNEL_IMAGE": "", "TUNNEL_REGISTRY": host, "TUNNEL_REGISTRY_CA_FILE": authority, "TUNNEL_REGISTRY_SECRET": secret.Name,
			"TUNNEL_PULL_SECRET": reads.Name, "TUNNEL_BASE_IMAGE": host + "/base:1",
		}, nil)
		n := tunneltest.Network(ctx)

		By("with the wrong password")
		p := tunneltest.Proxy(ctx, n.Name)
		tunneltest.Reaches(ctx, p, tunnelv1.StateFailed)
		Expect(p.Status.Message).To(And(ContainSubstring(host), Not(ContainSubstring(password))))
		goneWithAll(ctx, p)

		By("with the right one")
		secret.Data[corev1.DockerConfigJsonKey] = login(password)
		Expect(k8s.Update(ctx, secret)).To(Succeed())
		p = tunneltest.Proxy(ctx, n.Name)
		tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
		pod := tunneltest.ClientPod(ctx, p)
		Expect(pod.Spec.ImagePullSecrets).To(HaveLen(1))
		copied := apiserver.Get[corev1.Secret](ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.ImagePullSecrets[0].Name})
		Expect(copied.Data).To(Equal(reads.Data))
		all := apiserver.List[corev1.SecretList](ctx, client.InNamespace(pod.Namespace))
		for _, s := range all.Items {
			Expect(string(s.Data[corev1.DockerConfigJsonKey])).NotTo(ContainSubstring(password), "the login that pushes is in the network")
		}
		goneWithAll(ctx, p)
	})

	It("that is not configured is reported", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"TUNNEL_IMAGE": ""}, nil)
		p := tunneltest.Proxy(ctx, tunneltest.Network(ctx).Name)
		expect.Shows(ctx, p, tunnelv1.ConditionImageReady, "False", tunnelv1.ReasonImageNotConfigured)
		Expect(p.Status.State).To(Equal(tunnelv1.StatePending))
	})
})

// push pushes a new random image.
func push(reference string, how ...remote.Option) {
	GinkgoHelper()
	image, err := random.Image(64, 1)
	Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	Expect(err).NotTo(HaveOccurred())
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	image, err = mutate.ConfigFile(image, config)
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.ParseReference(reference)
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(tag, image, how...)).To(Succeed())
}
