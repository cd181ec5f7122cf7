package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/operator/certificate"
)

// certificateSlack keeps a renewal from running slightly too early.
const certificateSlack = time.Second

// labelName is the label of the operator's objects in the manifests.
const (
	labelName    = "app.kubernetes.io/name"
	operatorName = "berg-operator"
)

// certificateRotator keeps the certificate of the webhooks in a Secret, and its authority in
// the webhook configuration. Every replica reads it; the leader issues and renews it.
type certificateRotator struct {
	client client.Client
	clock  clock.PassiveClock
	// fence keeps a stolen token of the operator from changing more of the webhook configuration than its authorities.
	fence  *admissionpolicy.Policy
	secret types.NamespacedName
	// open is called when there are a certificate and a webhook configuration.
	open func()

	pair atomic.Pointer[tls.Certificate]
	// last is the data of the Secret when it was last read, in case it is deleted: with a new
	// authority, requests would fail until the API server trusts it.
	last atomic.Pointer[map[string][]byte]
}

// keepCertificate adds two controllers: every replica reads the certificate and serves with it, and only the
// leader issues and publishes it, so that two replicas never replace each other's authority.
func (m dependencyBuilder) keepCertificate(ctx context.Context, namespace string, open func()) (*certificateRotator, error) {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	deps, err := m.make(family.Family{
		AddToScheme: runtime.SchemeBuilder{corev1.AddToScheme, admissionregistrationv1.AddToScheme},
		Cache: func() cache.Options {
			return cache.Options{ByObject: map[client.Object]ctrlcache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]ctrlcache.Config{namespace: {FieldSelector: named(webhookSecret)}}},
				&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: named(WebhookConfiguration)},
			}}
		},
	})
	if err != nil {
		return nil, err
	}
	fence, err := deps.Policies.Follow(ctx, admissionpolicy.Fence, admissionpolicy.Install)
	if err != nil {
		return nil, err
	}
	k := &certificateRotator{
		client: deps.Manager.GetClient(), clock: deps.Clock, fence: fence, open: open,
		secret: types.NamespacedName{Namespace: namespace, Name: webhookSecret},
	}
	// A replica is ready only with a certificate: if it is stopped before, it would log that it had to wait.
	if err := reconcile.Open(ctx, deps.Manager.GetCache(), &corev1.Secret{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}); err != nil {
		return nil, err
	}
	// All events concern the one certificate.
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: k.secret}}
	})
	for name, c := range map[string]struct {
		do     func(context.Context, ctrl.Request) (ctrl.Result, error)
		leader bool
	}{"webhook-certificate-reader": {k.read, false}, "webhook-certificate": {k.keep, true}} {
		b := ctrl.NewControllerManagedBy(deps.Manager).
			Named(name).
			Watches(&corev1.Secret{}, enqueue).
			Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
			WithOptions(controller.Options{NeedLeaderElection: ptr.To(c.leader)})
		if c.leader {
			b = admissionpolicy.Watch(b, enqueue, fence)
		}
		if err := b.Complete(ctrlreconcile.Func(c.do)); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// certificate implements tls.Config's GetCertificate.
func (k *certificateRotator) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := k.pair.Load(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("the webhook server has no certificate yet")
}

// read takes the certificate from the Secret, and starts serving if the webhooks are configured.
func (k *certificateRotator) read(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := k.client.Get(ctx, k.secret, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the leader creates it
	}
	if secret.Labels[labelName] != operatorName {
		return ctrl.Result{}, nil // the leader logs it
	}
	pair, err := certificate.Pair(secret.Data)
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // the leader issues a new one
	}
	k.pair.Store(pair)
	k.last.Store(ptr.To(maps.Clone(secret.Data)))
	_, err = k.configuration(ctx)
	if err == nil {
		k.open()
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func (k *certificateRotator) configuration(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return c, k.client.Get(ctx, types.NamespacedName{Name: WebhookConfiguration}, c)
}

// keep issues and renews the certificate, and publishes its authorities in the webhook
// configuration. Without a configuration no certificate is needed.
func (k *certificateRotator) keep(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	configuration, err := k.configuration(ctx)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{}
	err = k.client.Get(ctx, k.secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return ctrl.Result{}, err
	}
	if !missing && secret.Labels[labelName] != operatorName || configuration.Labels[labelName] != operatorName {
		log.FromContext(ctx).Info("the webhooks are not served: their Secret or their configuration does not belong to the operator and was left untouched. Rename it, or label it app.kubernetes.io/name=berg-operator",
			"secret", k.secret, "configuration", WebhookConfiguration)
		return ctrl.Result{}, nil
	}
	data := secret.Data
	// A Secret that was deleted by hand is written again with the same content, and no request of the API server fails.
	if last := k.last.Load(); missing && last != nil {
		data = *last
	}
	maker := certificate.Maker{
		Names: []string{
			fmt.Sprintf("%s.%s.svc", webhookService, k.secret.Namespace),
			fmt.Sprintf("%s.%s.svc.cluster.local", webhookService, k.secret.Namespace), "localhost",
		},
		Now: k.clock.Now(),
	}
	next, changed, err := maker.Next(data, published(configuration))
	if err != nil {
		return ctrl.Result{}, err
	}
	// The Secret is written before its authorities are published. If the process is killed in between, the next reconciliation
	// finds the Secret unchanged and publishes.
	if changed || missing {
		if err := k.write(ctx, secret, missing, next); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := k.publish(ctx, configuration, next[certificate.KeyAuthorities]); err != nil {
		return ctrl.Result{}, err
	}
	due, err := certificate.Renewal(next)
	if err != nil {
		return ctrl.Result{}, err
	}
	// The timer is for a time months ahead. A clock that jumps is noticed by the next event at the latest, and a third of the
	// lifetime is left.
	return ctrl.Result{RequeueAfter: max(due.Sub(k.clock.Now()), 0) + certificateSlack}, nil
}

// write stores the certificate. If two replicas write at the same time, one gets a conflict and
// reconciles again.
func (k *certificateRotator) write(ctx context.Context, secret *corev1.Secret, missing bool, data map[string][]byte) error {
	if missing {
		return k.client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: k.secret.Namespace, Name: k.secret.Name, Labels: map[string]string{labelName: operatorName},
			},
			Type: corev1.SecretTypeTLS,
			Data: data,
		}, client.FieldOwner(fieldManager))
	}
	updated := secret.DeepCopy()
	updated.Data = data
	return k.client.Update(ctx, updated, client.FieldOwner(fieldManager))
}

// published are the authorities that all webhooks of a configuration trust; nil if they differ.
func published(c *admissionregistrationv1.ValidatingWebhookConfiguration) []byte {
	for i := range c.Webhooks {
		if !bytes.Equal(c.Webhooks[i].ClientConfig.CABundle, c.Webhooks[0].ClientConfig.CABundle) {
			return nil
		}
	}
	if len(c.Webhooks) == 0 {
		return nil
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

// publish waits until the fence is in force. Until then the API server trusts the previously published authorities: the
// certificate stays one that they have signed.
func (k *certificateRotator) publish(ctx context.Context, c *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) error {
	updated := c.DeepCopy()
	for i := range updated.Webhooks {
		updated.Webhooks[i].ClientConfig.CABundle = bundle
	}
	if len(updated.Webhooks) == 0 || bytes.Equal(published(c), bundle) {
		return nil
	}
	missing, err := admissionpolicy.Missing(ctx, k.fence)
	if err != nil {
		return err
	}
	if missing != "" {
		log.FromContext(ctx).Info("the authority of the webhooks' certificate is not published: the API server refuses the objects that they validate", "reason", missing)
		return nil
	}
	return k.client.Patch(ctx, updated, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
}
