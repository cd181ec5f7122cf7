// Package apiserver is the API server of KUBECONFIG as a suite uses it: a client with all
// rights, what config/default installs except the operator, namespaces, rights, and
// admission policies that refuse. A failure ends the spec.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// PollInterval is the time between two attempts of a wait.
	PollInterval = 100 * time.Millisecond
	// NamespacePrefix begins the names of the namespaces that specs make.
	NamespacePrefix = "integration-"
	// OperatorUser is the user name of the operator at the API server: an account that has the
	// rights of config/default and no other.
	OperatorUser = "system:serviceaccount:" + installed.Namespace + ":" + installed.Account
)

var (
	// Client has all rights. It is nil until Connect.
	Client client.WithWatch
	// Config is how Client reaches the API server, without a limit on requests.
	Config *rest.Config
)

// Run runs the specs of an integration suite, or skips them where there is no cluster.
func Run(t *testing.T, description string) {
	t.Helper()
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set: make test brings up a cluster and sets it")
	}
	RegisterFailHandler(Fail)
	SetDefaults()
	RunSpecs(t, description)
}

// Begin reaches the API server and installs what config/default has except the operator: at
// the beginning of an integration suite. It returns Client and Config.
func Begin(ctx context.Context) (client.WithWatch, *rest.Config) {
	GinkgoHelper()
	Connect()
	Install(ctx)
	return Client, Config
}

// SetDefaults bounds every wait of a suite by limits.Wait and the context of its spec, and
// makes it try again each PollInterval.
func SetDefaults() {
	SetDefaultEventuallyTimeout(limits.Wait)
	SetDefaultEventuallyPollingInterval(PollInterval)
	EnforceDefaultTimeoutsWhenUsingContexts()
}

// Connect reaches the API server of KUBECONFIG. Its client knows the kinds of Kubernetes, of
// the operator's families, and what add adds. Clients and operators in this process log to the spec.
func Connect(add ...func(*runtime.Scheme) error) {
	GinkgoHelper()
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	var err error
	Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	Expect(err).NotTo(HaveOccurred(), "read KUBECONFIG")
	Config.QPS = -1 // a limit here would show up as slowness of the operator
	scheme, err := operator.NewScheme(families.All()...)
	Expect(err).NotTo(HaveOccurred())
	for _, add := range append(add, clientgoscheme.AddToScheme) {
		Expect(add(scheme)).To(Succeed())
	}
	Client, err = client.NewWithWatch(Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred(), "reach the cluster of KUBECONFIG")
	Expect(gatewaytest.Serve(context.Background(), Config)).To(Succeed()) // until the process ends
}

// Install installs what config/default has except the operator, and waits until the API
// server serves it.
func Install(ctx context.Context) {
	GinkgoHelper()
	Expect(installed.Definitions(ctx, Client, "integration")).To(Succeed())
	definitions := &unstructured.UnstructuredList{}
	definitions.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	Eventually(func(g Gomega) {
		g.Expect(Client.List(ctx, definitions)).To(Succeed())
		g.Expect(definitions.Items).NotTo(BeEmpty())
		for _, definition := range definitions.Items {
			g.Expect(established(&definition)).To(BeTrue(), definition.GetName())
		}
	}).Should(Succeed())
}

// InstallDefinition installs a CustomResourceDefinition and waits until the API server
// serves it.
func InstallDefinition(ctx context.Context, definition *unstructured.Unstructured) {
	GinkgoHelper()
	Expect(Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), client.FieldOwner("integration"), client.ForceOwnership)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(Client.Get(ctx, client.ObjectKeyFromObject(definition), definition)).To(Succeed())
		g.Expect(established(definition)).To(BeTrue())
	}).Should(Succeed())
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if ok && condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// Namespace makes a namespace for the resources of one spec. It stays until the suite
// calls DeleteNamespaces: one on its way out would be in the way of the next specs.
func Namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: NamespacePrefix}}
	Expect(Client.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

// LabelNamespace gives a namespace a label, as its administrator does.
func LabelNamespace(ctx context.Context, namespace, label, value string) {
	GinkgoHelper()
	ns := Get[corev1.Namespace](ctx, client.ObjectKey{Name: namespace})
	Change(ctx, ns, func() { metav1.SetMetaDataLabel(&ns.ObjectMeta, label, value) })
}

// DeleteNamespaces deletes the namespaces that specs made, and fails when there is one
// whose name begins with any of foreign: what an operator made must be gone by then.
func DeleteNamespaces(ctx context.Context, foreign ...string) {
	GinkgoHelper()
	var namespaces corev1.NamespaceList
	// The last spec may have deleted one a moment ago.
	Eventually(func(g Gomega) {
		g.Expect(Client.List(ctx, &namespaces)).To(Succeed())
		for _, ns := range namespaces.Items {
			for _, prefix := range foreign {
				g.Expect(ns.Name).NotTo(HavePrefix(prefix), "a namespace is left over")
			}
		}
	}).Should(Succeed())
	for _, ns := range namespaces.Items {
		if strings.HasPrefix(ns.Name, NamespacePrefix) {
			Expect(Client.Delete(ctx, &ns)).To(Succeed())
		}
	}
}

// Object returns the object that a text of YAML describes.
func Object(text string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	return o
}

// Create creates an object that is deleted at the end of the spec.
func Create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(Client.Create(ctx, o)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(Client.Delete(ctx, o))).To(Succeed()) })
}

// Get reads an object.
func Get[T any, O interface {
	*T
	client.Object
}](ctx context.Context, key client.ObjectKey) O {
	GinkgoHelper()
	o := O(new(T))
	Expect(Client.Get(ctx, key, o)).To(Succeed())
	return o
}

// List returns the objects of a list's kind.
func List[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, opts ...client.ListOption) T {
	GinkgoHelper()
	var list T
	Expect(Client.List(ctx, L(&list), opts...)).To(Succeed())
	return list
}

// Change patches an object by what modify does to it.
func Change(ctx context.Context, o client.Object, modify func()) {
	GinkgoHelper()
	before := o.DeepCopyObject().(client.Object)
	modify()
	Expect(Client.Patch(ctx, o, client.MergeFrom(before))).To(Succeed())
}

// RawPatch is a patch as it is sent: a JSON patch if it begins as a list, else a merge
// patch.
func RawPatch(patch string) client.Patch {
	if strings.HasPrefix(patch, "[") {
		return client.RawPatch(types.JSONPatchType, []byte(patch))
	}
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

// ManyFinalizers are finalizers of others, more than caches keep.
func ManyFinalizers() (names []string) {
	for n := range 300 {
		names = append(names, fmt.Sprint("example.com/other-", n))
	}
	return names
}

// RemoveFinalizers takes all finalizers off an object.
func RemoveFinalizers(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(Client.Patch(ctx, o, RawPatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
}

// Names returns the names of the objects of a list.
func Names(ctx context.Context, list client.ObjectList, opts ...client.ListOption) []string {
	GinkgoHelper()
	Expect(Client.List(ctx, list, opts...)).To(Succeed())
	var out []string
	Expect(meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, o.(client.Object).GetName())
		return nil
	})).To(Succeed())
	return out
}

// As returns a client that acts as a user.
func As(user string) client.Client {
	GinkgoHelper()
	rc := rest.CopyConfig(Config)
	rc.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(rc, client.Options{Scheme: Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// May asks the API server whether a user is allowed something.
func May(ctx context.Context, user string, what authorizationv1.ResourceAttributes) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               user,
		Groups:             []string{"system:serviceaccounts", "system:authenticated"},
		ResourceAttributes: &what,
	}}
	Expect(Client.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// Token returns a token of a ServiceAccount, valid for an hour.
func Token(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// Changes watches the objects of a list's kind in a namespace from now on, until the spec
// ends. The API server ends a watch that cannot follow a burst; this one goes on where it was.
func Changes(ctx context.Context, now client.ObjectList, namespace string) <-chan watch.Event {
	GinkgoHelper()
	Expect(Client.List(ctx, now, client.InNamespace(namespace))).To(Succeed())
	w, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return Client.Watch(ctx, now, client.InNamespace(namespace), &client.ListOptions{Raw: &options})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	return w.ResultChan()
}
