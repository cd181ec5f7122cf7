// Package helm installs, configures, upgrades, rolls back and removes the operator with the real
// Helm, and by the one file, as an administrator does; and looks whether a player notices.
//
// It takes the cluster from KUBECONFIG: one with real pods, without the operator, with the images
// of operator and toolbox. HELM is the program. `make e2e E2E=helm` provides all of that.
package helm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// release and namespace differ from each other and from those of config/, which nothing may
	// rely on.
	release   = "ctf"
	namespace = "ctf-operator"
	// fileNamespace is that of the one file.
	fileNamespace = "berg-operator-system"
	// root is the way to the root of the repository.
	root = "../../.."
	// brief is for what must not happen.
	brief = "20s"
)

// startLimit covers an operator that starts, on two busy cores.
var startLimit = limits.Scaled(3 * time.Minute)

// k8s has all rights.
var k8s client.WithWatch

func TestInstallations(t *testing.T) {
	// A line on standard error instead of a suite of failures that all say it.
	for _, name := range []string{"KUBECONFIG", "HELM"} {
		if os.Getenv(name) == "" {
			t.Fatalf("%s is not set: run `make e2e E2E=helm`", name)
		}
	}
	format.MaxLength = 2000
	RegisterFailHandler(Fail)
	apiserver.SetDefaults()
	RunSpecs(t, "The operator, installed by Helm and by one file")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	apiserver.Connect(apiextensionsv1.AddToScheme)
	k8s = apiserver.Client
	// Connect makes it, and it is not left behind by the operator.
	gateway := client.ObjectKey{Namespace: gatewaytest.Namespace, Name: gatewaytest.Name}
	expect.Until(ctx, startLimit, func(ctx context.Context) error { return k8s.Get(ctx, gateway, &gatewayv1.Gateway{}) })
}, NodeTimeout(startLimit))

// helm runs Helm in the namespace of the release, and returns what it prints.
func helm(ctx context.Context, args ...string) (string, error) {
	return output(ctx, os.Getenv("HELM"), append(args, "--namespace", namespace)...)
}

// kubectl runs it as an administrator does.
func kubectl(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "kubectl", args...)
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = root
	text, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, text)
	}
	return string(text), err
}

// must expects that a program ends well, and returns what it printed.
func must(text string, err error) string {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return text
}

// install and upgrade are the arguments of Helm, with further ones.
func install(more ...string) []string {
	return append([]string{"install", release, "deploy/helm/berg-operator", "--create-namespace", "--wait", "--timeout", startLimit.String()}, more...)
}

func upgrade(more ...string) []string {
	return append([]string{"upgrade", release, "deploy/helm/berg-operator", "--reset-then-reuse-values", "--wait", "--timeout", startLimit.String()}, more...)
}

func deployment(ctx context.Context, in string) *appsv1.Deployment {
	GinkgoHelper()
	found := &appsv1.Deployment{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: in, Name: "berg-operator-controller-manager"}, found)).To(Succeed())
	return found
}

// setting is a variable of the operator; absent: it is not there.
const absent = "(absent)"

func setting(d *appsv1.Deployment, name string) string {
	for _, v := range d.Spec.Template.Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return absent
}

func exists(ctx context.Context, o client.Object, name string) bool {
	GinkgoHelper()
	err := k8s.Get(ctx, client.ObjectKey{Name: name}, o)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return !apierrors.IsNotFound(err)
}

// pods are the UIDs of those of an instance.
func pods(ctx context.Context, i *bergv1.ChallengeInstance) (uids []string) {
	GinkgoHelper()
	var list corev1.PodList
	Expect(k8s.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
	for _, pod := range list.Items {
		uids = append(uids, string(pod.UID))
	}
	Expect(uids).NotTo(BeEmpty())
	return uids
}
