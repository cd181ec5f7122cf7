package kibaship

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/test/cluster/process"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// whole has everything of its repository in the image, also what it does not name.
const whole = `FROM registry.berg.test/base:1
ARG SOURCE_COMMIT
ARG TARGETARCH
WORKDIR /app
COPY . .
RUN --mount=type=cache,target=/cache echo "$SOURCE_COMMIT" >/commit && date >/when-it-ran; touch -d @1 /old; rm /when-it-ran; echo "$TARGETARCH" >/architecture
RUN <<EOF
set -e
printf '%s' "it's $SOURCE_COMMIT" >/here
EOF
CMD ["cat","/commit","/here"]
`

var _ = Describe("The image of a commit", func() {
	It("is the same for each build of the commit, and has nothing of git, the files of root and the time of the commit", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.token(ctx, "git", site.Token)
		library := newRepository(ctx, "private/"+p.project+"-library", map[string]string{"text": "of the library"})
		commit := newRepository(ctx, "private/"+p.project, map[string]string{
			"Dockerfile": whole, "folder/text": "x", ".gitmodules": "[submodule \"library\"]\n\tpath = library\n\turl = ../" + p.project + "-library.git\n",
		}, func(work string) {
			git(ctx, work, "update-index", "--add", "--cacheinfo", "160000,"+library+",library")
		})
		d := p.deploy(ctx, p.application(ctx, "private/"+p.project, private("git")), commit)
		succeeds(ctx, d)
		first := d.Status.BuiltImage.Digest
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal(commit + "\nit's " + commit))

		image := p.pull(ctx, d.Status.BuiltImage.Reference)
		config, err := image.ConfigFile()
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Created.Unix()).To(BeNumerically("==", commitTime))
		Expect(config.Config.Labels).To(And(
			HaveKeyWithValue("org.opencontainers.image.revision", commit),
			HaveKeyWithValue("org.opencontainers.image.source", site.Git+"/private/"+p.project),
			HaveKeyWithValue("org.opencontainers.image.created", time.Unix(commitTime, 0).UTC().Format(time.RFC3339))))
		files := lastHeaders(image)
		Expect(files).To(And(HaveKey("app/folder/text"), HaveKey("app/library/text"), HaveKey("commit")))
		for name, header := range files {
			if !strings.HasPrefix(name, "app") {
				continue
			}
			Expect(name).NotTo(ContainSubstring(".git/"))
			Expect(name).NotTo(HaveSuffix("/.git"))
			Expect([]int{header.Uid, header.Gid}).To(Equal([]int{0, 0}), name)
			Expect(header.Mode&0o7022).To(BeZero(), name)
		}
		for _, name := range []string{"app/folder/text", "app/folder", "commit", "old"} {
			Expect(files[name].ModTime.Unix()).To(BeNumerically("==", commitTime), name)
		}

		By("building it again, and another commit in between")
		next := newRepository(ctx, "private/"+p.project, map[string]string{"Dockerfile": whole, "folder/text": "y"})
		build(ctx, d, next)
		succeeds(ctx, d)
		Expect(d.Status.BuiltImage.Digest).NotTo(Equal(first))
		again := newRepository(ctx, "private/"+p.project, map[string]string{
			"Dockerfile": whole, "folder/text": "x", ".gitmodules": "[submodule \"library\"]\n\tpath = library\n\turl = ../" + p.project + "-library.git\n",
		}, func(work string) {
			git(ctx, work, "update-index", "--add", "--cacheinfo", "160000,"+library+",library")
		})
		Expect(again).To(Equal(commit), "the same content, authors and times")
		build(ctx, d, commit)
		succeeds(ctx, d)
		Expect(d.Status.BuiltImage.Digest).To(Equal(first), "the earlier image")
		earlier := d.Status.CurrentPipelineRun.Name
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.CurrentPipelineRun.Name).NotTo(Equal(earlier))
			g.Expect(d.Status.CurrentPipelineRun.Phase).To(Equal(kibashipv1.DeploymentSucceeded), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
		Expect(d.Status.BuiltImage.Digest).To(Equal(first), "another build of the commit")

		By("looking at what the platform counts")
		var pods corev1.PodList
		Expect(world.List(ctx, &pods, client.InNamespace(p.namespace), client.MatchingLabels{kibashipv1.LabelUUID: d.Labels[kibashipv1.LabelProjectUUID]})).To(Succeed())
		Expect(len(pods.Items)).To(BeNumerically(">=", 3), "pods of builds with the UUID of the Project")
	}, SpecTimeout(4*buildLimit))

	It("may have a layer of 1.8 GB with the limits that are the default", Serial, func(ctx SpecContext) {
		var disk syscall.Statfs_t
		Expect(syscall.Statfs(site.Repositories, &disk)).To(Succeed())
		Expect(disk.Bavail*uint64(disk.Bsize)).To(BeNumerically(">", uint64(10<<30)), "the file is in the container, its layer, the archive, the pushed layer and the registry")
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{
			"Dockerfile": "FROM registry.berg.test/base:1\nRUN dd if=/dev/urandom of=/large bs=1M count=1800\nCMD [\"sh\",\"-c\",\"ls -l /large\"]\n",
		})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		succeeds(ctx, d)
		layers, err := p.pull(ctx, d.Status.BuiltImage.Reference).Layers()
		Expect(err).NotTo(HaveOccurred())
		Expect(layers[len(layers)-1].Size()).To(BeNumerically(">", 1800<<20))
	}, SpecTimeout(2*buildLimit))
})

var _ = Describe("What an author is shown of a build that failed", func() {
	DescribeTable("is the cause", func(ctx SpecContext, dockerfile, reported string) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": dockerfile})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(ContainSubstring(reported))
		Expect(d.Status.Message).NotTo(Or(ContainSubstring("INFO"), ContainSubstring("\x1b")))
	},
		Entry("the last lines of a command", "FROM registry.berg.test/base:1\nRUN printf '\\033[31mERROR: cannot find module left-pad\\033[0m\\n' >&2; exit 3\n",
			`exit code 3. The last lines, which the author of the repository may have written: "ERROR: cannot find module left-pad"`),
		Entry("a here-document that is copied", "FROM registry.berg.test/base:1\nCOPY <<EOF /x\nx\nEOF\n", "Step prepare failed: Dockerfile: line 2: COPY <<EOF /x: the builder has no here-documents"),
		Entry("a mount", "FROM registry.berg.test/base:1\nRUN --mount=type=secret,id=x true\n", "the builder ignores --mount=type=secret"),
		Entry("an unknown flag", "FROM registry.berg.test/base:1\nCOPY --wrong=1 a b\n", "unknown flag: --wrong"),
		Entry("a base that is not there", "FROM registry.berg.test/no-such-base:1\n", `"error building image: `),
	)

	It("is that the pod was deleted", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": "FROM registry.berg.test/base:1\nRUN sleep 600\n"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		pod := p.pod(ctx)
		Expect(world.Delete(ctx, pod, client.GracePeriodSeconds(1))).To(Succeed())
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(ContainSubstring("pod " + pod.Name + " was deleted"))
	}, SpecTimeout(2*buildLimit))
})

var _ = Describe("A build whose surroundings fail", Serial, func() {
	It("is built without a cache that is away, and says so", func(ctx SpecContext) {
		host, _, err := net.SplitHostPort(site.Registry)
		Expect(err).NotTo(HaveOccurred())
		deployed.SetVariable(ctx, "BUILD_CACHE_REGISTRY", net.JoinHostPort(host, "1")+"/cache")
		DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, "BUILD_CACHE_REGISTRY", "") }, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "without a cache"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		succeeds(ctx, d)
		Expect(d.Status.Message).To(ContainSubstring("Built without the cache of BUILD_CACHE_REGISTRY: " + net.JoinHostPort(host, "1")))
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("without a cache"))
	}, SpecTimeout(2*buildLimit))

	It("says that its git server does not answer, and leaves the time of a run to the build", func(ctx SpecContext) {
		deployed.SetVariable(ctx, "BUILD_TIMEOUT", "60s")
		DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, "BUILD_TIMEOUT", "30m") }, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "x"})
		a := p.application(ctx, "public/"+p.project)
		signalGit(syscall.SIGSTOP) // it accepts connections, and answers none
		DeferCleanup(signalGit, syscall.SIGCONT)
		d := p.deploy(ctx, a, "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunTimedOut)
		Expect(d.Status.Message).To(ContainSubstring("Step clone was ended: The git server does not answer"))
		run := d.Status.CurrentPipelineRun
		Expect(run.CompletionTime.Sub(run.StartTime.Time)).To(BeNumerically("<", 50*time.Second))
	}, SpecTimeout(2*buildLimit))

	It("says within minutes that Tekton's controller is away, and ends when it is back", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": "FROM registry.berg.test/base:1\nRUN sleep 10\n"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		p.pod(ctx)
		controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tekton-pipelines", Name: "tekton-pipelines-controller"}}
		scale := func(ctx context.Context, replicas int32) {
			GinkgoHelper()
			apiserver.Change(ctx, controller, func() { controller.Spec.Replicas = &replicas })
		}
		Expect(world.Get(ctx, client.ObjectKeyFromObject(controller), controller)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { scale(ctx, 1) }, NodeTimeout(deployed.ReactLimit))
		scale(ctx, 0)
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.Message).To(ContainSubstring("Tekton has not continued PipelineRun"))
		}).WithContext(ctx).WithTimeout(limits.Scaled(4 * time.Minute)).Should(Succeed())
		scale(ctx, 1)
		succeeds(ctx, d)
	}, SpecTimeout(3*buildLimit))
})

// signalGit sends a signal to the git server of the cluster.
func signalGit(signal syscall.Signal) {
	GinkgoHelper()
	Expect(syscall.Kill(findProcess("git").PID, signal)).To(Succeed())
}

// findProcess returns a process of the cluster.
func findProcess(component string) process.Process {
	GinkgoHelper()
	all, err := process.Of(filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG"))))
	Expect(err).NotTo(HaveOccurred())
	at := slices.IndexFunc(all, func(p process.Process) bool { return p.Component == component && p.Leader })
	Expect(at).To(BeNumerically(">=", 0), "%s is not found", component)
	return all[at]
}

// pod waits for the pod of the build of a Project, until its commands run.
func (p platform) pod(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(world.List(ctx, &pods, client.InNamespace(p.namespace), client.HasLabels{kibashipv1.LabelDeployment})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		*pod = pods.Items[0]
		for _, container := range pod.Status.ContainerStatuses {
			if container.Name == "step-prepare" {
				g.Expect(container.State.Terminated).NotTo(BeNil(), "the step before the one that builds")
			}
		}
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
	}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
	return pod
}

// pull reads an image from the registry, without its layers.
func (p platform) pull(ctx context.Context, reference string) v1.Image {
	GinkgoHelper()
	ref, err := name.ParseReference(reference)
	Expect(err).NotTo(HaveOccurred())
	authority, err := os.ReadFile(site.Authority)
	Expect(err).NotTo(HaveOccurred())
	var through http.RoundTripper
	through, err = registry.Transport(authority, registry.Nearby)
	Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	Expect(world.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: loginSecret}, secret)).To(Succeed())
	logins, err := registry.ParseLogins(secret.Data[registry.ConfigKey])
	Expect(err).NotTo(HaveOccurred())
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithTransport(through), remote.WithAuth(logins.For(ref.Context())))
	Expect(err).NotTo(HaveOccurred())
	return image
}

// lastHeaders returns the last header of each path in an image.
func lastHeaders(image v1.Image) map[string]*tar.Header {
	GinkgoHelper()
	layers, err := image.Layers()
	Expect(err).NotTo(HaveOccurred())
	all := map[string]*tar.Header{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		Expect(err).NotTo(HaveOccurred())
		files := tar.NewReader(content)
		for {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			Expect(err).NotTo(HaveOccurred())
			all[strings.Trim(header.Name, "/")] = header
		}
		Expect(content.Close()).To(Succeed())
	}
	return all
}
