package kibaship

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

var _ = Describe("A build with a volume", Serial, func() {
	const class = "berg-local"
	BeforeEach(func(ctx SpecContext) {
		setOperator(ctx, map[string]string{"BUILD_WORKSPACE": "volume", "BUILD_STORAGE_CLASS": class, "BUILD_STORAGE_SIZE": "1Gi"})
		DeferCleanup(func(ctx SpecContext) {
			setOperator(ctx, map[string]string{"BUILD_WORKSPACE": "emptyDir", "BUILD_STORAGE_CLASS": "", "BUILD_STORAGE_SIZE": "24Gi"})
		}, NodeTimeout(deployed.StartLimit))
	}, NodeTimeout(deployed.StartLimit))

	It("waits for its StorageClass, and then clones and builds in two pods", func(ctx SpecContext) {
		p := newPlatform(ctx)
		commit := newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "two pods"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentWaiting, deployed.ReactLimit)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonStorageClassNotFound)
		provideVolume(ctx, class)

		// It is looked for again and again, with growing pauses.
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.CurrentPipelineRun).NotTo(BeNil(), d.Status.Message)
		}).WithContext(ctx).WithTimeout(deployed.StartLimit).Should(Succeed())
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentSucceeded, buildLimit)
		Expect(d.Status.BuiltImage.CommitSHA).To(Equal(commit))
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("two pods"))
	}, SpecTimeout(3*buildLimit))

	It("says that its volume is full", func(ctx SpecContext) {
		onNode(ctx, "mount", "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", provideVolume(ctx, class))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{
			"Dockerfile": "FROM registry.berg.test/base:1\nRUN dd if=/dev/urandom of=/large bs=1M count=40\n",
		})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		// The archive of the image fits, and its layer a second time does not.
		Expect(d.Status.Message).To(And(ContainSubstring("Step push failed: the image that was built: layer "), ContainSubstring("no space left on device. The disk of the node, or the volume, is full: ")))
	}, SpecTimeout(3*buildLimit))

	It("keeps an author's code from tokens, the login and the commit, as one without does", func(ctx SpecContext) {
		provideVolume(ctx, class)
		_, password, _ := strings.Cut(site.Login, ":")
		loot := attack(ctx, strings.Join([]string{searchToken, search(site.Token), search(password), forgery()}, "\n"))
		Expect(strings.Fields(loot)).To(Equal([]string{planted, planted}))
	}, SpecTimeout(3*buildLimit))
})

// provideVolume makes a StorageClass with one volume, which a build on the node may claim, and returns the path of the volume there.
func provideVolume(ctx SpecContext, class string) (path string) {
	GinkgoHelper()
	// The kubelet's folder of the node is this one of the cluster's state.
	dir, err := os.MkdirTemp(filepath.Join(filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG"))), "kubelet"), "volume-")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	DeferCleanup(os.RemoveAll, dir)
	path = "/var/lib/kubelet/" + filepath.Base(dir)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: filepath.Base(dir)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:              class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node"}}},
			}}}},
		},
	}
	storage := apiserver.Object(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: ` + class + `}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}`)
	for _, o := range []client.Object{volume, storage} {
		Expect(world.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, o)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	}
	return path
}

// onNode runs a command in the mounts of the node.
func onNode(ctx SpecContext, command ...string) {
	GinkgoHelper()
	target := fmt.Sprintf("--target=%d", findProcess("kubelet").PID)
	out, err := exec.CommandContext(ctx, "nsenter", append([]string{target, "--mount", "--"}, command...)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}
