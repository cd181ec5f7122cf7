package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// imageRegistry is a registry at the node's address: the operator pushes to it, and the node pulls
// from it as it would from any other.
type imageRegistry struct {
	address string
	// authority of its certificate, in PEM; nil: it uses HTTP.
	authority []byte
	// user and password are required of all clients, unless they are empty.
	user, password string

	// held is closed when requests are let through again; nil while they are.
	held atomic.Pointer[chan struct{}]
}

// startRegistry starts one until the spec ends, and configures the node for it.
func startRegistry(ctx context.Context, secure bool, user, password string) *imageRegistry {
	GinkgoHelper()
	r := &imageRegistry{user: user, password: password}
	var listener net.Listener
	atNode(ctx, func() {
		var err error
		listener, err = net.Listen("tcp", net.JoinHostPort(world.NodeAddress, "0"))
		Expect(err).NotTo(HaveOccurred())
	})
	r.address = listener.Addr().String()
	server := &http.Server{Handler: r.handler(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(GinkgoWriter, "", 0)}
	scheme := "http"
	if secure {
		scheme = "https"
		server.TLSConfig = r.certificate()
		go func() { _ = server.ServeTLS(listener, "", "") }()
	} else {
		go func() { _ = server.Serve(listener) }()
	}
	DeferCleanup(func() {
		r.release()
		_ = server.Close()
	})

	// A cluster of profile node has the registry settings of containerd next to its kubeconfig.
	folder := filepath.Join(filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG"))), "node", "certs.d", r.address)
	Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
	DeferCleanup(os.RemoveAll, folder)
	hosts := fmt.Sprintf("server = \"%[1]s://%[2]s\"\n[host.\"%[1]s://%[2]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", scheme, r.address)
	if secure {
		authority := filepath.Join(folder, "ca.crt")
		Expect(os.WriteFile(authority, r.authority, 0o600)).To(Succeed())
		hosts += fmt.Sprintf("  ca = %q\n", authority)
	}
	Expect(os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(hosts), 0o600)).To(Succeed())
	r.pushBase()
	return r
}

func (r *imageRegistry) handler() http.Handler {
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		// It still answers pings: otherwise no image is looked up.
		if held := r.held.Load(); held != nil && request.URL.Path != "/v2/" {
			select {
			case <-*held:
			case <-request.Context().Done():
				return
			}
		}
		if user, password, ok := request.BasicAuth(); r.user != "" && (!ok || user != r.user || password != r.password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, request)
	})
}

// hold blocks all pulls and pushes until release.
func (r *imageRegistry) hold() {
	until := make(chan struct{})
	r.held.Store(&until)
}

func (r *imageRegistry) release() {
	if held := r.held.Swap(nil); held != nil {
		close(*held)
	}
}

func (r *imageRegistry) certificate() *tls.Config {
	GinkgoHelper()
	authority, err := pki.NewAuthority("registry of the journeys")
	Expect(err).NotTo(HaveOccurred())
	raw, key, err := authority.Issue(pki.Identity{Hosts: []string{world.NodeAddress}})
	Expect(err).NotTo(HaveOccurred())
	r.authority = pki.Encode("CERTIFICATE", authority.Certificate.Raw)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
}

func (r *imageRegistry) base() string { return r.address + "/base:1" }

// pushBase pushes a base image: a static program needs nothing in it.
func (r *imageRegistry) pushBase() {
	GinkgoHelper()
	image, err := random.Image(64, 1)
	Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	Expect(err).NotTo(HaveOccurred())
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	image, err = mutate.ConfigFile(image, config)
	Expect(err).NotTo(HaveOccurred())
	var how []name.Option
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if r.authority == nil {
		how = append(how, name.Insecure)
	} else {
		pool := x509.NewCertPool()
		Expect(pool.AppendCertsFromPEM(r.authority)).To(BeTrue())
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	defer transport.CloseIdleConnections()
	tag, err := name.ParseReference(r.base(), how...)
	Expect(err).NotTo(HaveOccurred())
	options := []remote.Option{remote.WithTransport(transport)}
	if r.user != "" {
		options = append(options, remote.WithAuth(&authn.Basic{Username: r.user, Password: r.password}))
	}
	Expect(remote.Write(tag, image, options...)).To(Succeed())
}

// buildsImages has the operator build images for a registry, in place of the ready one of this
// suite, until the spec ends.
func buildsImages(ctx context.Context, r *imageRegistry) {
	GinkgoHelper()
	const authorities, login = "tunnel-registry-authority", "tunnel-registry-login"
	namespace := world.Operator.Namespace
	set := map[string]string{
		"TUNNEL_IMAGE": "", "TUNNEL_REGISTRY": r.address, "TUNNEL_BASE_IMAGE": r.base(),
		"TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_REGISTRY_CA_FILE": "", "TUNNEL_REGISTRY_SECRET": "", "TUNNEL_PULL_SECRET": "",
	}
	if r.user != "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: login}, Type: corev1.SecretTypeDockerConfigJson}
		secret.Data = map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q}}}`, r.address, r.user, r.password)}
		Expect(world.Create(ctx, secret)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, secret)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
		set["TUNNEL_REGISTRY_SECRET"], set["TUNNEL_PULL_SECRET"] = login, login
	}
	mounts := ""
	if r.authority != nil {
		file := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: authorities}, Data: map[string]string{"ca.crt": string(r.authority)}}
		Expect(world.Create(ctx, file)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, file)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
		changeVolumes(ctx, fmt.Sprintf(`{"name":%[1]q,"configMap":{"name":%[1]q}}`, authorities))
		mounts = fmt.Sprintf(`,"volumeMounts":[{"name":%q,"mountPath":"/etc/%s","readOnly":true}]`, authorities, authorities)
		set["TUNNEL_REGISTRY_INSECURE"], set["TUNNEL_REGISTRY_CA_FILE"] = "false", "/etc/"+authorities+"/ca.crt"
	}
	DeferCleanup(func(ctx SpecContext) {
		without := ""
		if mounts != "" {
			without = fmt.Sprintf(`,"volumeMounts":[{"$patch":"delete","mountPath":"/etc/%s"}]`, authorities)
		}
		changeSettings(ctx, map[string]string{
			"TUNNEL_IMAGE": os.Getenv("TUNNEL_PROXY_IMAGE"), "TUNNEL_REGISTRY": "", "TUNNEL_BASE_IMAGE": world.Settings["TUNNEL_BASE_IMAGE"],
			"TUNNEL_REGISTRY_INSECURE": "false", "TUNNEL_REGISTRY_CA_FILE": "", "TUNNEL_REGISTRY_SECRET": "", "TUNNEL_PULL_SECRET": "",
		}, without)
		if mounts != "" {
			changeVolumes(ctx, fmt.Sprintf(`{"$patch":"delete","name":%q}`, authorities))
			changeSettings(ctx, nil, "") // waits
		}
	}, NodeTimeout(3*deployed.StartLimit))
	changeSettings(ctx, set, mounts)
}

// changeSettings changes the operator's environment, and more fields of its container, and waits
// until every pod has them.
func changeSettings(ctx context.Context, variables map[string]string, more string) {
	GinkgoHelper()
	var env string
	for name, value := range variables {
		env += fmt.Sprintf(`,{"name":%q,"value":%q}`, name, value)
	}
	deployed.ChangeManager(ctx, `"env":[`+env[min(1, len(env)):]+`]`+more)
}

// changeVolumes changes one of the volumes of the operator's pods.
func changeVolumes(ctx context.Context, volume string) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: world.Operator.Namespace, Name: world.Operator.Name}}
	patch := `{"spec":{"template":{"spec":{"volumes":[` + volume + `]}}}}`
	Expect(world.Patch(ctx, deployment, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))).To(Succeed())
}

var _ = Describe("An image that the operator builds", Serial, func() {
	DescribeTable("is pushed to a registry and pulled by the node", func(ctx SpecContext, secure bool, user, password string) {
		r := startRegistry(ctx, secure, user, password)
		buildsImages(ctx, r)
		p := newPair(ctx)
		Expect(p.Status.ClientProxyContainerImage).To(HavePrefix(r.address + "/dcptun_developer_ms@sha256:"))
		p.reaches(ctx, "web", "server")
		tunneltest.Delete(ctx, p.ContainerNetworkTunnelProxy)
		Expect(leftOf(ctx, p.ContainerNetworkTunnelProxy)).To(BeEmpty())

		By("a base that does not exist")
		missing := tunneltest.NewProxy(p.Spec.ContainerNetworkName)
		missing.Spec.BaseImage = r.address + "/missing:1"
		tunneltest.Create(ctx, missing)
		tunneltest.Reaches(ctx, missing, tunnelv1.StateFailed)
		Expect(missing.Status.Message).To(ContainSubstring("/missing:1"))
		if password != "" {
			Expect(missing.Status.Message).NotTo(ContainSubstring(password))
			text, err := world.OperatorLog(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(text).NotTo(ContainSubstring(password))
		}
	},
		Entry("with HTTP and without a login", false, "", "", SpecTimeout(limit)),
		Entry("with TLS and a login", true, "tunnels", "a-password-that-stays-secret", SpecTimeout(limit)),
	)
})
