package berg

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/prepull"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// imageSize and registryRate make every pull take five seconds at least.
	imageSize    = 200 << 20
	registryRate = 40 << 20
	pullTime     = imageSize / registryRate * time.Second
	// roundsVariable says how often each start is measured, fewRounds how often by default.
	roundsVariable = "PREPULL_ROUNDS"
	fewRounds      = 3
	// registryUser and registryPassword are who may pull and push.
	registryUser, registryPassword = "berg", "of-no-use-elsewhere"
	// idle is what the program of the tests does as the program of the images: nothing.
	idle = "prepull-idle"
)

func init() {
	if len(os.Args) == 2 && os.Args[1] == idle {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
		os.Exit(0)
	}
}

var _ = Describe("Images that are pulled ahead, on real pods", Label("prepull"), Serial, func() {
	It("from a private registry start like images that are there, and others wait for it", func(ctx SpecContext) {
		rounds, err := strconv.Atoi(cmp.Or(os.Getenv(roundsVariable), strconv.Itoa(fewRounds)))
		Expect(err).NotTo(HaveOccurred())
		allowPrepull(ctx)
		withSetting(ctx, "IMAGE_PREPULL_LEAD", "30m")
		slow := startSlowRegistry(ctx)
		letIn(ctx, slow)
		stage := journey.NewStage(ctx)

		var cold, there, ahead []time.Duration
		for n := range rounds {
			stage.Challenge(ctx, fmt.Sprintf("cold-%d", n), bergv1.Container{Hostname: "web", Image: slow.push(ctx, fmt.Sprintf("cold:%d", n))})
			early := stage.Challenge(ctx, fmt.Sprintf("early-%d", n), bergv1.Container{Hostname: "web", Image: slow.push(ctx, fmt.Sprintf("early:%d", n))})
			before := early.DeepCopy()
			early.Spec.HideUntil = time.Now().Add(20 * time.Minute).UTC().Format(time.RFC3339)
			Expect(world.Patch(ctx, early, client.MergeFrom(before))).To(Succeed())
			imagesReady(ctx, early)

			cold = append(cold, startOf(ctx, stage, fmt.Sprintf("cold-%d", n)))
			there = append(there, startOf(ctx, stage, fmt.Sprintf("cold-%d", n)))
			ahead = append(ahead, startOf(ctx, stage, early.Name))
		}
		AddReportEntry("starts", fmt.Sprintf("of %d each: not there %s; there %s; pulled ahead %s", rounds, spread(cold), spread(there), spread(ahead)))
		Expect(slices.Min(cold)).To(BeNumerically(">=", pullTime), "the registry is not slow")
		Expect(slices.Max(ahead)).To(BeNumerically("<", pullTime), "a start waited for the registry")
		if rounds >= 20 { // of few, the load of the machine decides
			Expect(expect.Median(ahead).Seconds()).To(BeNumerically("<=", 1.2*expect.Median(there).Seconds()))
			Expect(slices.Max(ahead).Seconds()).To(BeNumerically("<=", 1.2*slices.Max(there).Seconds()))
		}
	}, SpecTimeout(limits.Scaled(40*time.Minute)))

	It("of a registry that refuses the operator are reported in its words", func(ctx SpecContext) {
		allowPrepull(ctx)
		withSetting(ctx, "IMAGE_PREPULL_LEAD", "30m")
		slow := startSlowRegistry(ctx)
		stage := journey.NewStage(ctx)
		c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "refused"}}
		c.Spec = bergv1.ChallengeSpec{Prepull: true, Containers: []bergv1.Container{{Hostname: "web", Image: slow.address + "/secret:1"}}}
		Expect(world.Create(ctx, c)).To(Succeed())
		expect.Refreshed(ctx, deployed.StartLimit, c, func() error {
			now := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)
			return deployed.ErrorIf(now == nil || now.Reason != bergv1.ImagesPullFailed || !strings.Contains(strings.ToLower(now.Message), "authoriz"), expect.Conditions(c))
		})
		Expect(world.Delete(ctx, c)).To(Succeed())
		expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
			return world.NamespaceGone(ctx, prepull.NamespacePrefix+string(c.UID))
		})
	}, SpecTimeout(deployed.SpecLimit))
})

// allowPrepull binds the role of config/berg/prepull until the spec ends.
func allowPrepull(ctx context.Context) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "kubectl", "apply", "-k", "../../../config/berg/prepull")
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	command.Env = os.Environ()
	Expect(command.Run()).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-prepull"}}
		Expect(client.IgnoreNotFound(world.Delete(ctx, binding))).To(Succeed())
	}, NodeTimeout(deployed.ReactLimit))
}

// letIn gives the operator the login of a registry as its pull secret, until the spec ends.
func letIn(ctx context.Context, r slowRegistry) {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: world.Operator.Namespace, Name: "slow-registry"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, r.address, registryUser, registryPassword)},
	}
	Expect(world.Create(ctx, secret)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, secret)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	withSetting(ctx, "PULL_SECRET_NAME", secret.Name)
}

// imagesReady waits until the images of a Challenge are on its nodes, and what pulled them is gone.
func imagesReady(ctx context.Context, c *bergv1.Challenge) {
	GinkgoHelper()
	expect.Refreshed(ctx, 2*deployed.StartLimit, c, func() error {
		return deployed.ErrorIf(!meta.IsStatusConditionTrue(c.Status.Conditions, bergv1.ChallengeConditionImagesReady), expect.Conditions(c))
	})
	expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
		return world.NamespaceGone(ctx, prepull.NamespacePrefix+string(c.UID))
	})
}

// startOf returns how long an instance takes to run, and ends it.
func startOf(ctx context.Context, stage *journey.Stage, challenge string) time.Duration {
	GinkgoHelper()
	began := time.Now()
	reported := stage.Start(ctx, stage.Instance(challenge))
	reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
	took := time.Since(began)
	reported.Delete(ctx)
	reported.ExpectEnd(ctx)
	return took
}

func spread(all []time.Duration) string {
	return fmt.Sprintf("median %s, longest %s", expect.Median(all).Round(time.Millisecond), slices.Max(all).Round(time.Millisecond))
}

// slowRegistry gives what it has at a known rate. It takes at any.
type slowRegistry struct{ address string }

// startSlowRegistry serves one next to the node until the spec ends, which pulls from it over plain HTTP.
func startSlowRegistry(ctx context.Context) slowRegistry {
	GinkgoHelper()
	node := net.ParseIP(world.NodeAddress).To4()
	Expect(node).NotTo(BeNil())
	node[3]-- // the other end of the node's line is on this machine
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(node.String(), "0"))
	Expect(err).NotTo(HaveOccurred(), "this wants a cluster of profile node on this machine")
	limit := rate.NewLimiter(registryRate, 1<<20)
	blobs := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(GinkgoT().TempDir())), registry.Logger(log.New(GinkgoWriter, "", 0)))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != registryUser || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="slow"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			w = slowWriter{w, r.Context(), limit}
		}
		blobs.ServeHTTP(w, r)
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	DeferCleanup(func() {
		Expect(server.Close()).To(Succeed())
		Eventually(ended).Should(Receive(MatchError(http.ErrServerClosed)))
	})
	address := listener.Addr().String()
	// The folder that a cluster of profile node gives its container runtime.
	hosts := filepath.Join(filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG"))), "node", "certs.d", address)
	Expect(os.MkdirAll(hosts, 0o700)).To(Succeed())
	DeferCleanup(os.RemoveAll, hosts)
	text := fmt.Sprintf("server = %q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+address)
	Expect(os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte(text), 0o600)).To(Succeed())
	return slowRegistry{address}
}

// push makes an image of random content whose program does nothing, and returns its name.
func (r slowRegistry) push(ctx context.Context, tag string) string {
	GinkgoHelper()
	program, err := os.ReadFile("/proc/self/exe")
	Expect(err).NotTo(HaveOccurred())
	content := make([]byte, imageSize)
	_, err = rand.Read(content) // no two alike: a node keeps a layer once
	Expect(err).NotTo(HaveOccurred())
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer("program", 0o755, program), layer("content", 0o644, content))
	Expect(err).NotTo(HaveOccurred())
	config, err := image.ConfigFile()
	Expect(err).NotTo(HaveOccurred())
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Entrypoint = []string{"/program", idle}
	image, err = mutate.ConfigFile(image, config)
	Expect(err).NotTo(HaveOccurred())
	reference, err := name.NewTag(r.address+"/"+tag, name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(reference, image, remote.WithContext(ctx), remote.WithAuth(&authn.Basic{Username: registryUser, Password: registryPassword}))).To(Succeed())
	return reference.Name()
}

func layer(file string, mode int64, content []byte) v1.Layer {
	GinkgoHelper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	Expect(w.WriteHeader(&tar.Header{Name: file, Mode: mode, Size: int64(len(content))})).To(Succeed())
	_, err := w.Write(content)
	Expect(err).NotTo(HaveOccurred())
	Expect(w.Close()).To(Succeed())
	return static.NewLayer(archive.Bytes(), types.OCIUncompressedLayer)
}

// slowWriter writes no faster than a limit that all share.
type slowWriter struct {
	http.ResponseWriter
	ctx   context.Context //nolint:containedctx // a Writer has no other way to know when it is of no use
	limit *rate.Limiter
}

func (w slowWriter) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, w.limit.Burst()) {
		if err := w.limit.WaitN(w.ctx, len(part)); err != nil {
			return n, err
		}
		written, err := w.ResponseWriter.Write(part)
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}
