package olm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

const (
	platformAPI       = "berg-api"
	platformNamespace = "berg"
	platformToken     = "olm-token-of-ctfd-0123456789"
)

// grantPlatformAPI does what docs/platform-api.md says before the setting: namespace, token, rights.
func grantPlatformAPI(ctx context.Context) {
	GinkgoHelper()
	// The Gateway of the tests is in the same namespace.
	Expect(client.IgnoreAlreadyExists(world.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: platformNamespace}}))).To(Succeed())
	for _, object := range []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "berg-api-tokens"},
			StringData: map[string]string{"ctfd": "{endpoint: chall-manager, token: " + platformToken + "}"},
		},
		&bergv1.Challenge{
			ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace, Name: quick},
			Spec:       bergv1.ChallengeSpec{Containers: []bergv1.Container{{Hostname: "box", Image: toolboxImage}}},
		},
	} {
		Expect(world.Create(ctx, object)).To(Succeed())
	}
	Expect(installed.Folder(ctx, world, "config/berg/api/rights", "administrator")).To(Succeed())
}

// revokePlatformAPI takes back what grantPlatformAPI has made, except the Secret, which goes with its namespace.
func revokePlatformAPI(ctx context.Context) {
	GinkgoHelper()
	for _, kind := range []client.Object{
		&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRole{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{},
	} {
		Expect(world.DeleteAllOf(ctx, kind, client.MatchingLabels{"app.kubernetes.io/name": platformAPI})).To(Succeed())
	}
	Expect(world.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: platformNamespace}})).To(Succeed())
}

// callPlatformAPI sends a request of CTFd through the Service, and returns status and body.
func callPlatformAPI(ctx context.Context, method, path string, body map[string]any) (int, string, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	through := apiserver.Config.Host + "/api/v1/namespaces/" + operatorNamespace + "/services/" + platformAPI + ":api/proxy" + path
	request, err := http.NewRequestWithContext(ctx, method, through, bytes.NewReader(sent))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Ctfd-Auth", platformToken)
	caller, err := rest.HTTPClientFor(apiserver.Config)
	if err != nil {
		return 0, "", err
	}
	answer, err := caller.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	received, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(received), err
}

// expectPlatformAPI waits until all replicas of the platform API are of a version, and it answers so.
func expectPlatformAPI(ctx context.Context, version string, status int) {
	GinkgoHelper()
	expect.Until(ctx, installLimit, func(ctx context.Context) error {
		if err := rolledOut(ctx, platformAPI, version); err != nil {
			return err
		}
		got, body, err := callPlatformAPI(ctx, http.MethodGet, "/healthcheck", nil)
		if err == nil && got != status {
			err = fmt.Errorf("%d %s", got, body)
		}
		return err
	})
}

// rolledOut is nil when all replicas of a program of the package are of a version.
func rolledOut(ctx context.Context, name, version string) error {
	deployment := &appsv1.Deployment{}
	if err := world.Get(ctx, inOperatorNamespace(name), deployment); err != nil {
		return err
	}
	if container := deployment.Spec.Template.Spec.Containers[0]; !ofVersion(container, version) {
		return fmt.Errorf("the Deployment %s runs %s", name, container.Image)
	}
	have, want := deployment.Status, *deployment.Spec.Replicas
	if have.ObservedGeneration < deployment.Generation || have.UpdatedReplicas != want || have.AvailableReplicas != want || have.Replicas != want {
		return fmt.Errorf("the Deployment %s is being rolled out: %+v", name, have)
	}
	return nil
}
