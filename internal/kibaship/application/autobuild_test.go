package application

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/git"
	"github.com/bergctf/berg-operator/internal/kibaship/hook"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// newReconciler returns a Reconciler of a cluster with some objects, which refuses what refuse says.
func newReconciler(t *testing.T, refuse func(client.Object) error, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kibashipv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refuse != nil {
				if err := refuse(o); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	return &Reconciler{
		Access: reconcile.Access{Client: c, Writer: apply.Writer{Client: c, Live: c}},
		Config: config.KibaShip{Pushes: config.Pushes{WebhookURL: "https://pushes.example.org"}},
		Keys:   &hook.Keys{Live: c, Client: c, Namespace: "system"},
	}
}

func built() *kibashipv1.Application {
	a := private()
	a.UID = "6e8ddb5c-8a4c-4f3d-9d5e-6c1d2d8f8f11"
	a.Spec.GitRepository.AutoBuild = &kibashipv1.AutoBuild{Enabled: true}
	return a
}

// The Secret of a webhook has what the receiver expects. A restored key gives the same one, and another key another one.
func TestTheSecretOfAWebhookFollowsFromTheKey(t *testing.T) {
	a := built()
	r := newReconciler(t, nil)
	read := func() *corev1.Secret {
		t.Helper()
		b := &AutoBuild{}
		if err := r.ensureWebhook(t.Context(), a, b); err != nil || b.SecretProblem != "" {
			t.Fatalf("%v %s", err, b.SecretProblem)
		}
		secret := &corev1.Secret{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: a.Namespace, Name: b.Secret}, secret); err != nil {
			t.Fatal(err)
		}
		if string(secret.Data["url"]) != b.URL || !metav1.IsControlledBy(secret, a) {
			t.Errorf("%s, owned by %v", secret.Data["url"], secret.OwnerReferences)
		}
		return secret
	}
	first := read()
	key, err := r.Keys.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := hook.Derive(key, hook.NewPath(a.Namespace, a.Name, a.UID)); string(first.Data["secret"]) != want.Text() || string(first.Data["signing-token"]) != want.SigningToken() {
		t.Errorf("%q", first.Data)
	}
	if again := read(); again.ResourceVersion != first.ResourceVersion {
		t.Error("a Secret in place was written")
	}
	// Another process reads the same key.
	r.Keys = &hook.Keys{Live: r.Client, Client: r.Client, Namespace: "system"}
	if again := read(); again.ResourceVersion != first.ResourceVersion {
		t.Error("another process has another secret")
	}
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: hook.KeySecret}}
	if err := r.Client.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	r.Keys = &hook.Keys{Live: r.Client, Client: r.Client, Namespace: "system"}
	if other := read(); string(other.Data["secret"]) == string(first.Data["secret"]) {
		t.Error("another key has the same secret")
	}
}

func TestASecretInTheWayIsLeftAlone(t *testing.T) {
	a := built()
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: "project-mystore-app-web-webhook-kibaship-com"}}
	for name, r := range map[string]*Reconciler{
		"of others": newReconciler(t, nil, foreign),
		"refused": newReconciler(t, func(o client.Object) error {
			if o.GetNamespace() == a.Namespace {
				return apierrors.NewForbidden(corev1.Resource("secrets"), o.GetName(), nil)
			}
			return nil
		}),
	} {
		b := &AutoBuild{Answered: true, Refs: []kibashipv1.AutoBuildRef{{}}}
		if err := r.ensureWebhook(t.Context(), a, b); err != nil || b.SecretProblem == "" || b.Secret != "" || !b.Refused {
			t.Errorf("%s: %v %+v", name, err, b)
		}
	}
}

func TestACommitIsGivenToItsDeploymentOnce(t *testing.T) {
	a := built()
	ref := git.Ref{Name: "refs/heads/main", Commit: "aaa"}
	key := client.ObjectKey{Namespace: a.Namespace, Name: deploymentName(a, ref)}
	r := newReconciler(t, nil)
	find := func() *kibashipv1.Deployment {
		t.Helper()
		d := &kibashipv1.Deployment{}
		if err := r.Client.Get(t.Context(), key, d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	give := func(d *kibashipv1.Deployment, commit string) *AutoBuild {
		t.Helper()
		b := &AutoBuild{}
		if message, err := r.deploy(t.Context(), a, git.Ref{Name: ref.Name, Commit: commit}, d, b); err != nil || message != "" {
			t.Fatalf("%s %v", message, err)
		}
		return b
	}
	if b := give(nil, "aaa"); len(b.started) != 1 || b.started[0].before != "" {
		t.Errorf("%+v", b.started)
	}
	d := find()
	if d.Spec.GitRepository.CommitSHA != "aaa" || d.Spec.GitRepository.Branch != "main" || !metav1.IsControlledBy(d, a) {
		t.Errorf("%+v", d)
	}
	if b := give(d, "aaa"); len(b.started) > 0 {
		t.Error("a commit was given twice")
	}
	if b := give(find(), "bbb"); len(b.started) != 1 || b.started[0].before != "aaa" {
		t.Errorf("a build that waits was replaced: %+v", b.started)
	}
	// Its author goes back, which lasts until the next push.
	d = find()
	d.Spec.GitRepository.CommitSHA = "aaa"
	if err := r.Client.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if b := give(find(), "bbb"); len(b.started) > 0 || find().Spec.GitRepository.CommitSHA != "aaa" {
		t.Error("what its author set was overwritten")
	}
	give(find(), "ccc")
	if find().Spec.GitRepository.CommitSHA != "ccc" {
		t.Error("a later push is not built")
	}
	// One of the same name that was made by hand stays as it is.
	d = find()
	d.OwnerReferences = nil
	b := &AutoBuild{}
	if message, err := r.deploy(t.Context(), a, git.Ref{Name: ref.Name, Commit: "ddd"}, d, b); err != nil || message == "" || find().Spec.GitRepository.CommitSHA != "ccc" {
		t.Errorf("%q %v", message, err)
	}
}

func TestARefusedDeploymentSaysWhy(t *testing.T) {
	a := built()
	r := newReconciler(t, func(client.Object) error {
		return apierrors.NewForbidden(kibashipv1.GroupVersion.WithResource("deployments").GroupResource(), "d", nil)
	})
	b := &AutoBuild{}
	message, err := r.deploy(t.Context(), a, git.Ref{Name: "refs/tags/v1", Commit: "aaa"}, nil, b)
	if err != nil || message == "" || !b.Refused {
		t.Errorf("%q %v %+v", message, err, b)
	}
}
