package quix

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// shell runs commands of a page or of a message.
func shell(ctx context.Context, commands string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "sh", "-ec", commands).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", commands, out)
	return string(out)
}

// followMessage waits until the message of an environment has a command to hand a namespace over, and runs it.
func followMessage(ctx context.Context, env *quixv1.Environment) {
	GinkgoHelper()
	expect.Settles(ctx, env, quixv1.PhaseFailed)
	command := regexp.MustCompile(`kubectl label .*}}'`).FindString(env.Status.Message)
	Expect(command).NotTo(BeEmpty(), "%s", env.Status.Message)
	shell(ctx, command)
	expect.Settles(ctx, env, quixv1.PhaseReady)
}

// pageCommands returns the commands in a section of the page about Environments.
func pageCommands(heading string) []string {
	GinkgoHelper()
	page, err := os.ReadFile("../../../docs/quix/environment.md")
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(page), "\n### "+heading+"\n")
	Expect(found).To(BeTrue(), "the page has no section %q", heading)
	if end := regexp.MustCompile(`(?m)^##`).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	var all []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		all = append(all, block[1])
	}
	return all
}

var _ = Describe("After another operator was removed with its CRD", Serial, func() {
	It("no tenant is deleted until an administrator says so, and each can be kept", func(ctx context.Context) {
		resume := inprocess.Pause()
		kept, ended := formerEnvironment(ctx), formerEnvironment(ctx)
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName("environments.quix.io")
		for _, f := range []former{kept, ended} {
			Expect(k8s.Patch(ctx, f.env, apiserver.RawPatch(`{"metadata":{"finalizers":["`+quixv1.Finalizer+`"]}}`))).To(Succeed())
		}
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(k8s.Delete(ctx, kept.ns))).To(Succeed())
			Expect(installed.Definitions(ctx, k8s, "integration")).To(Succeed())
		})
		Expect(k8s.Delete(ctx, crd)).To(Succeed())
		// An operator that sees one of them before its deletion takes that for a request of its own time.
		for _, f := range []former{kept, ended} {
			Eventually(func() bool {
				return k8s.Get(ctx, client.ObjectKeyFromObject(f.env), f.env) == nil && f.env.DeletionTimestamp != nil
			}).Should(BeTrue())
		}

		By("installing this operator")
		resume()
		for _, f := range []former{kept, ended} {
			expect.Shows(ctx, f.env, quixv1.ConditionReady, metav1.ConditionFalse, quixv1.ReasonDeletionBlocked)
			expect.Shows(ctx, f.env, quixv1.ConditionStalled, metav1.ConditionTrue, quixv1.ReasonDeletionBlocked)
			Expect(f.env.Status.Message).To(And(ContainSubstring("nothing was deleted"), ContainSubstring("After helm uninstall"), ContainSubstring(quixv1.AnnotationConfirmDeletion)))
			leftAlone(ctx, f.ns)
			leftAlone(ctx, f.binding)
		}

		By("confirming the deletion of one")
		shell(ctx, "kubectl annotate environment "+ended.env.Name+" "+quixv1.AnnotationConfirmDeletion+"=true")
		expect.Gone(ctx, ended.env)
		expect.Gone(ctx, ended.ns)
		leftAlone(ctx, kept.ns)

		By("keeping the other one as the page says")
		commands := pageCommands("After helm uninstall")
		Expect(len(commands)).To(BeNumerically(">=", 4))
		work := GinkgoT().TempDir()
		shell(ctx, "cd "+work+"\n"+commands[0])
		shell(ctx, commands[1])
		shell(ctx, commands[2])
		inprocess.Pause()
		Expect(installed.Definitions(ctx, k8s, "integration")).To(Succeed())
		Eventually(func() error { return k8s.List(ctx, &quixv1.EnvironmentList{}) }).Should(Succeed())
		resume()
		Eventually(func() error {
			out, err := exec.CommandContext(ctx, "sh", "-ec", "cd "+filepath.Clean(work)+"\n"+commands[3]).CombinedOutput()
			GinkgoWriter.Printf("%s", out)
			return err
		}).Should(Succeed())
		former := kept.env.UID
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(kept.env), kept.env)).To(Succeed())
		Expect(kept.env.UID).NotTo(Equal(former))
		followMessage(ctx, kept.env)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKeyFromObject(kept.ns))
		Expect(ns.UID).To(Equal(kept.ns.UID))
		Expect(ns.DeletionTimestamp).To(BeNil())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(kept.data), kept.data)).To(Succeed())
		expect.Deleted(ctx, kept.env)
		expect.Gone(ctx, kept.ns)
	})
})

var _ = Describe("An Environment", func() {
	It("that was restored from a backup gets its namespace back by the command of its message", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		ns, binding := environmentNamespace(ctx, env), environmentBinding(ctx, env)
		data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "tenant"}}
		Expect(k8s.Create(ctx, data)).To(Succeed())

		resume := inprocess.Pause()
		Expect(k8s.Patch(ctx, ns, apiserver.RawPatch(`{"metadata":{"ownerReferences":null}}`))).To(Succeed())
		Expect(k8s.Patch(ctx, env, apiserver.RawPatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		expect.Deleted(ctx, env)
		restored := quixtest.Environment(ctx, env.Spec.ID, func(e *quixv1.Environment) { e.GenerateName, e.Name = "", env.Name })
		resume()
		expect.Shows(ctx, restored, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceOwnershipConflict)
		followMessage(ctx, restored)
		Expect(environmentNamespace(ctx, restored).UID).To(Equal(ns.UID))
		Expect(environmentBinding(ctx, restored).UID).To(Equal(binding.UID))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(data), data)).To(Succeed())
	})

	It("gets its status back when an older operator that still runs replaces it", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		ns := environmentNamespace(ctx, env)
		// The type of the older operator has neither conditions nor the UID of the namespace.
		Eventually(func() error {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(env), env)).To(Succeed())
			env.Status.Conditions, env.Status.NamespaceUID, env.Status.NamespaceTokenHash = nil, "", ""
			return k8s.Status().Update(ctx, env)
		}).Should(Succeed())
		expect.Shows(ctx, env, quixv1.ConditionReady, metav1.ConditionTrue, quixv1.ReasonEnvironmentReady)
		Expect(env.Status.NamespaceUID).To(Equal(ns.UID))
		Expect(environmentNamespace(ctx, env).UID).To(Equal(ns.UID))
	})

	It("whose namespace lost label and annotation says what holds it, and ends when that is done", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		ns := environmentNamespace(ctx, env)
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, ns))).To(Succeed()) })
		inprocess.Instead(clock.RealClock{}, nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/rolebindings/") {
				return transport.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden, "the operator may not delete it"), nil
			}
			return next.RoundTrip(r)
		}))
		Expect(k8s.Patch(ctx, ns, apiserver.RawPatch(`{"metadata":{"labels":{"quix.io/managed-by":null},"annotations":{"quix.io/environment-uid":null},"ownerReferences":null}}`))).To(Succeed())
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Shows(ctx, env, quixv1.ConditionStalled, metav1.ConditionTrue, quixv1.ReasonRoleBindingDeletionFailed)
		Expect(meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionRoleBindingReady).Reason).To(Equal(quixv1.ReasonRoleBindingDeletionFailed))
		command := regexp.MustCompile(`kubectl -n \S+ delete rolebinding \S+`).FindString(env.Status.Message)
		Expect(command).NotTo(BeEmpty(), "%s", env.Status.Message)
		shell(ctx, command)
		expect.Gone(ctx, env)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))).To(BeTrue())
	})
})
