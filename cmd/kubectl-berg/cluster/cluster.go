// Package cluster connects the program to the API server, with the permissions of its user.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"k8s.io/apimachinery/pkg/runtime/serializer"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/connection"
)

// negotiated reads the kinds of the program as they are served, without a conversion between versions.
func negotiated() runtime.NegotiatedSerializer {
	scheme, _ := kinds()
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// Cluster is a connection to an API server. Its methods may be called concurrently, and Lost with them.
type Cluster struct {
	client.WithWatch
	// Config is for the few requests that are not about one object.
	Config *rest.Config
	// Namespace is the namespace that kubectl would use.
	Namespace string
	// RetryTimeout is how long each read is repeated while the API server does not answer. 0: it is not repeated.
	RetryTimeout time.Duration
	// Lost is called with the error when reads begin to be repeated, and with nil when the API server answers again.
	Lost func(error)

	clock clock.PassiveClock
	skew  skew
}

// FieldOwner is the name of the program in managedFields.
const FieldOwner = "kubectl-berg"

// attemptTimeout limits a request where --request-timeout does not, so that a silently broken connection
// is noticed.
const attemptTimeout = 30 * time.Second

// Connect reads the flags of kubectl. It sends no request.
func Connect(flags *genericclioptions.ConfigFlags, userAgent string, now clock.PassiveClock, warn rest.WarningHandler) (*Cluster, error) {
	loader := flags.ToRawKubeConfigLoader()
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Config: connection.Configure(config), Namespace: namespace, clock: now}
	c.Config.UserAgent = userAgent
	c.Config.WarningHandlerWithContext = redact.Warnings{Next: warn}
	c.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dateObserver{next, c} })
	scheme, mapper := kinds()
	direct, err := client.NewWithWatch(c.Config, client.Options{Scheme: scheme, Mapper: mapper, FieldOwner: FieldOwner})
	if err != nil {
		return nil, err
	}
	c.WithWatch = interceptor.NewClient(redact.Client(direct), interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return c.read(ctx, func(ctx context.Context) error { return next.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.read(ctx, func(ctx context.Context) error { return next.List(ctx, list, opts...) })
		},
	})
	return c, nil
}

// read limits the time of each attempt, and repeats it for RetryTimeout while the API server does not answer. A read inside of an
// Attempt is not repeated: its caller does that.
func (c *Cluster) read(ctx context.Context, once func(context.Context) error) error {
	end, bounded := ctx.Deadline()
	if c.RetryTimeout <= 0 || bounded && time.Until(end) <= attemptTimeout {
		return Attempt(ctx, once)
	}
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 5 * time.Second}
	began, lost := c.clock.Now(), false
	for {
		err := Attempt(ctx, once)
		if !Transient(err) || ctx.Err() != nil || c.clock.Since(began) >= c.RetryTimeout {
			if lost && err == nil {
				c.Lost(nil)
			}
			return err
		}
		if !lost && c.Lost != nil {
			lost = true
			c.Lost(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff.Step()):
		}
	}
}

// kinds are the Kinds that the program uses. They are fixed, so that no command needs discovery.
func kinds() (*runtime.Scheme, meta.RESTMapper) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme,
		admissionregistrationv1.AddToScheme, gatewayv1.Install, bergv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	mapper := meta.NewDefaultRESTMapper(nil)
	for group, namespaced := range map[schema.GroupVersion]map[string]bool{
		bergv1.GroupVersion: {"Challenge": true, "ChallengeInstance": true, "ChallengeInstanceRecord": true, "ChallengeCheck": true},
		corev1.SchemeGroupVersion: {
			"Pod": true, "Event": true, "Secret": true, "ConfigMap": true, "Service": true, "ResourceQuota": true,
			"Namespace": false, "Node": false,
		},
		appsv1.SchemeGroupVersion:                      {"Deployment": true, "ReplicaSet": true, "DaemonSet": true},
		coordinationv1.SchemeGroupVersion:              {"Lease": true},
		authorizationv1.SchemeGroupVersion:             {"SelfSubjectAccessReview": false},
		admissionregistrationv1.SchemeGroupVersion:     {"ValidatingAdmissionPolicy": false, "ValidatingAdmissionPolicyBinding": false},
		{Group: gatewayv1.GroupName, Version: "v1"}:    {"HTTPRoute": true, "TLSRoute": true},
		{Group: "apiextensions.k8s.io", Version: "v1"}: {"CustomResourceDefinition": false},
	} {
		for kind, inNamespace := range namespaced {
			scope := meta.RESTScopeRoot
			if inNamespace {
				scope = meta.RESTScopeNamespace
			}
			mapper.Add(group.WithKind(kind), scope)
		}
	}
	// The mapper would guess "gatewaies".
	gateways := schema.GroupVersion{Group: gatewayv1.GroupName, Version: "v1"}
	mapper.AddSpecific(gateways.WithKind("Gateway"), gateways.WithResource("gateways"), gateways.WithResource("gateway"), meta.RESTScopeNamespace)
	return scheme, mapper
}

// dateObserver observes the time of the API server.
type dateObserver struct {
	next http.RoundTripper
	to   *Cluster
}

// RoundTrip takes the date of every answer, also of a refusal.
func (d dateObserver) RoundTrip(r *http.Request) (*http.Response, error) {
	began := d.to.clock.Now()
	response, err := d.next.RoundTrip(r)
	if err == nil {
		d.to.skew.observe(response.Header.Get("Date"), began, d.to.clock.Now())
	}
	return response, err
}

// WrappedRoundTripper lets client-go close the connections of the wrapped transport.
func (d dateObserver) WrappedRoundTripper() http.RoundTripper { return d.next }

// skew is the last comparison of the clocks: each answer replaces it.
type skew struct {
	mu     sync.Mutex
	known  bool
	offset time.Duration
}

// observe compares a date with the middle of the request. A date is truncated to seconds: the middle of
// its second is used.
func (s *skew) observe(date string, began, ended time.Time) {
	serverTime, err := http.ParseTime(date)
	if err != nil || ended.Sub(began) > 5*time.Second {
		return // a watch, or too slow to compare
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.offset = true, serverTime.Add(500*time.Millisecond).Sub(began.Add(ended.Sub(began)/2))
}

// Skew returns how far the API server's clock is ahead of this machine's, to about a second. It is known
// after the first answer.
func (c *Cluster) Skew() (skew time.Duration, known bool) {
	c.skew.mu.Lock()
	defer c.skew.mu.Unlock()
	return c.skew.offset, c.skew.known
}

// notableSkew is the difference from which Now corrects the clock of this machine.
const notableSkew = 2 * time.Second

// Now returns the time of the cluster.
func (c *Cluster) Now() time.Time {
	now := c.clock.Now()
	if skew, known := c.Skew(); known && skew.Abs() > notableSkew {
		return now.Add(skew)
	}
	return now
}

// Clock is the clock of this machine.
func (c *Cluster) Clock() clock.PassiveClock { return c.clock }

// Raw returns a client for requests to a group that are not about a whole object.
func (c *Cluster) Raw(gv schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.Config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = negotiated()
	return rest.RESTClientFor(config)
}

// pageSize is the number of instances in a page of a list.
const pageSize = 500

// Instances lists instances, page by page. All pages are of one resource version, so that the list is consistent and a
// watch can continue from it. A list that fails within its pages returns nothing: a part of the instances would look like all of
// them.
func (c *Cluster) Instances(ctx context.Context, opts ...client.ListOption) (all []bergv1.ChallengeInstance, resourceVersion string, err error) {
	var page bergv1.ChallengeInstanceList
	for {
		limited := append([]client.ListOption{client.Limit(pageSize), client.Continue(page.Continue)}, opts...)
		page = bergv1.ChallengeInstanceList{}
		if err := c.List(ctx, &page, limited...); err != nil {
			return nil, "", err
		}
		all = append(all, page.Items...)
		if page.Continue == "" {
			return all, page.ResourceVersion, nil
		}
	}
}

// Attempt limits the time of one request, so that a broken connection is noticed. An end of ctx itself stays the error that it
// is.
func Attempt(ctx context.Context, do func(context.Context) error) error {
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := do(attempt)
	if err != nil && ctx.Err() == nil && errors.Is(attempt.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w within %s", errNoAnswer, attemptTimeout)
	}
	return err
}
