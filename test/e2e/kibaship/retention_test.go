package kibaship

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// distribution starts the registry of that name in a Project, without a login. It returns its address in the cluster, and here.
func (p platform) distribution(ctx context.Context) (host, here string) {
	GinkgoHelper()
	const port = 5000
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "distribution"},
		Data: map[string]string{"config.yml": fmt.Sprintf(
			"version: 0.1\nstorage: {filesystem: {rootdirectory: /tmp/registry}, delete: {enabled: true}}\nhttp: {addr: \":%d\"}\n", port)},
	}
	Expect(world.Create(ctx, config)).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "distribution"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "registry", Image: "registry.berg.test/distribution:1", Args: []string{"serve", "/config/config.yml"},
				VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
			}},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: config.Name}},
			}}},
		},
	}
	Expect(world.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(world.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.PodIP).NotTo(BeEmpty())
		g.Expect(pod.Status.ContainerStatuses).To(ContainElement(HaveField("Ready", true)), "%+v", pod.Status)
	}).WithContext(ctx).WithTimeout(deployed.StartLimit).Should(Succeed())
	return fmt.Sprintf("%s:%d", pod.Status.PodIP, port), world.Forward(client.ObjectKeyFromObject(pod), port)
}

// retain turns the clean-up on until the spec ends, for the images of a registry.
func retain(ctx context.Context, host, login string) {
	GinkgoHelper()
	kubectl := func(ctx context.Context, verb string, options ...string) {
		GinkgoHelper()
		command := exec.CommandContext(ctx, "kubectl", append([]string{verb, "-k", "../../../config/kibaship/retention"}, options...)...)
		command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
		command.Env = os.Environ()
		Expect(command.Run()).To(Succeed())
	}
	kubectl(ctx, "apply")
	authority, err := os.ReadFile(site.Authority)
	Expect(err).NotTo(HaveOccurred())
	user, password, _ := strings.Cut(login, ":")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kibaship-images", Name: "cleanup"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{
			corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, host, user, password), "ca.crt": string(authority),
		},
	}
	Expect(world.Create(ctx, secret)).To(Succeed())
	setOperator(ctx, map[string]string{"BUILD_REGISTRY": host + "/kibaship", "IMAGE_CLEANUP": "true"})
	DeferCleanup(func(ctx SpecContext) {
		kubectl(ctx, "delete", "--ignore-not-found") // with the Secret in its namespace
		setOperator(ctx, map[string]string{"BUILD_REGISTRY": site.Registry + "/kibaship", "IMAGE_CLEANUP": "false"})
	}, NodeTimeout(deployed.StartLimit))
}

var _ = Describe("Images of earlier builds", Serial, func() {
	DescribeTable("go when nothing names them, and the named one runs", func(ctx SpecContext, another bool) {
		p := newPlatform(ctx)
		host, here, login := site.Registry, site.Registry, site.Login
		if another {
			host, here = p.distribution(ctx)
			login = ":"
		}
		find := func(reference string) error { return findImage(ctx, strings.Replace(reference, host, here, 1), login) }
		retain(ctx, host, login)
		commit := newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "first"})
		a := p.application(ctx, "public/"+p.project)
		apiserver.Change(ctx, a, func() {
			a.Spec.ImageRetention = &kibashipv1.ImageRetention{Count: ptr.To(int32(0)), Age: &metav1.Duration{}}
		})
		d := p.deploy(ctx, a, commit)
		succeeds(ctx, d)
		first := d.Status.BuiltImage.Reference
		Expect(first).To(HavePrefix(host + "/kibaship/" + p.project + "/web@"))
		Expect(find(first)).To(Succeed(), "a Deployment names it")
		expect.Deleted(ctx, d)
		Eventually(func() error { return find(first) }).WithContext(ctx).WithTimeout(deployed.ReactLimit).Should(MatchError(ContainSubstring("404")))

		commit = newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "second"})
		d = p.deploy(ctx, a, commit)
		succeeds(ctx, d)
		expect.Shows(ctx, a, kibashipv1.ConditionImagesCleanedUp, metav1.ConditionTrue, kibashipv1.ReasonImagesCleanedUp)
		Expect(find(d.Status.BuiltImage.Reference)).To(Succeed(), "%+v; %+v", d.Status, a.Status)
		if !another { // the node knows this registry
			Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("second"))
		}
		builds := apiserver.Get[kibashipv1.Project](ctx, client.ObjectKey{Name: p.project}).Status.Usage.Builds
		Expect(builds).NotTo(BeEmpty())
		var bytes int64
		for _, day := range builds {
			bytes += day.ImageBytes
		}
		Expect(bytes).To(BeNumerically(">", 1<<10), "the images of both builds")
	},
		Entry("from the registry of go-containerregistry", SpecTimeout(3*buildLimit), false),
		Entry("from distribution", SpecTimeout(3*buildLimit), true),
	)
})

// findImage asks a registry for an image.
func findImage(ctx context.Context, reference, login string) error {
	GinkgoHelper()
	ref, err := name.ParseReference(reference)
	Expect(err).NotTo(HaveOccurred())
	authority, err := os.ReadFile(site.Authority)
	Expect(err).NotTo(HaveOccurred())
	var through http.RoundTripper
	through, err = registry.Transport(authority, registry.Nearby)
	Expect(err).NotTo(HaveOccurred())
	user, password, _ := strings.Cut(login, ":")
	logins := registry.Logins{}
	if user != "" {
		logins[ref.Context().RegistryStr()] = authn.AuthConfig{Username: user, Password: password}
	}
	_, err = remote.Head(ref, remote.WithContext(ctx), remote.WithTransport(through), remote.WithAuth(logins.For(ref.Context())))
	return err
}
