package challenge

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// cluster is an API server with one challenge, and its definition if there is one.
type cluster struct {
	client.Client
	challenge  *hexactfv1.Challenge
	definition *hexactfv1.ChallengeDefinition
	refusal    error // of every status patch
}

// reconciler returns one of that cluster.
func (c *cluster) reconciler(t *testing.T) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{hexactfv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.challenge).WithStatusSubresource(c.challenge).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				definition, ok := into.(*hexactfv1.ChallengeDefinition)
				if !ok {
					return w.Get(ctx, key, into, opts...)
				}
				if c.definition == nil {
					return apierrors.NewNotFound(schema.GroupResource{Group: hexactfv1.GroupVersion.Group, Resource: "challengedefinitions"}, key.Name)
				}
				c.definition.DeepCopyInto(definition)
				return nil
			},
			SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if c.refusal != nil {
					return c.refusal
				}
				return w.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(c.challenge), c.challenge); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{
		Access: reconcile.Access{
			Client: c.Client, Writer: apply.Writer{Client: c.Client, Live: c.Client, Manager: "test"},
			Events: events.NewFakeRecorder(100), Clock: clocktesting.NewFakePassiveClock(noon),
		},
		Config: testConfig(t, nil), deliveries: deliveries{off: true},
	}
	r.kind = r.newKind()
	return r
}

// reconcileAt reconciles the challenge at a time, and reads it again.
func (c *cluster) reconcileAt(t *testing.T, now time.Time) {
	t.Helper()
	r := c.reconciler(t)
	r.kind.Clock = clocktesting.NewFakePassiveClock(now)
	key := client.ObjectKeyFromObject(c.challenge)
	if _, err := r.kind.Reconciler().Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	*c.challenge = hexactfv1.Challenge{}
	if err := c.Get(t.Context(), key, c.challenge); err != nil {
		t.Fatal(err)
	}
}

// A challenge that can never run is deleted, even if the API server refuses the status that says why. One that can still
// be fixed stays.
func TestARefusedStatusKeepsNoChallenge(t *testing.T) {
	kind := schema.GroupKind{Group: hexactfv1.GroupVersion.Group, Kind: "Challenge"}
	refused := apierrors.NewInvalid(kind, "challenge-42-alice", field.ErrorList{field.Invalid(field.NewPath("status"), "x", "no")})
	for name, tc := range map[string]struct {
		user    string
		refusal error
		ends    bool
	}{
		"refused, and it can never run":      {"Alice!", refused, true},
		"refused, and it lacks a definition": {"alice", refused, false},
		"not answered":                       {"Alice!", errors.New("connection refused"), false},
		"accepted":                           {"Alice!", nil, true},
	} {
		c := testChallenge()
		c.Labels[hexactfv1.LabelUser] = tc.user
		c.Finalizers = []string{hexactfv1.Finalizer}
		server := &cluster{challenge: c, refusal: tc.refusal}
		server.reconcileAt(t, noon)
		if ends := c.DeletionTimestamp != nil; ends != tc.ends {
			t.Errorf("%s: it is deleted: %v", name, ends)
		}
	}
}

// If another Service has taken the node port of a challenge, the challenge gets another one. It waits for one that is
// being released, and never gives up one that the definition names.
func TestServiceWhoseNodePortIsTaken(t *testing.T) {
	const published = 30080
	kind := schema.GroupKind{Kind: "Service"}
	taken := apierrors.NewInvalid(kind, "s", field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), published, "provided port is already allocated")})
	other := apierrors.NewInvalid(kind, "s", field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(0).Child("port"), 0, "must be between 1 and 65535")})
	for name, tc := range map[string]struct {
		published int32
		wants     int32 // of the plan
		errs      []error
		asks      []int32 // at the beginning and at the end
		fails     bool
	}{
		"free":                         {published: published, wants: published, asks: []int32{published, published}},
		"released a little later":      {published: published, wants: published, errs: []error{taken, taken}, asks: []int32{published, published}},
		"taken":                        {published: published, wants: published, errs: slices.Repeat([]error{taken}, 1000), asks: []int32{published, 0}},
		"refused for another reason":   {published: published, wants: published, errs: []error{other}, asks: []int32{published, published}, fails: true},
		"taken, and in the definition": {published: published, wants: 30500, errs: []error{taken}, asks: []int32{30500, 30500}, fails: true},
		"taken, and not published":     {wants: published, errs: []error{taken}, asks: []int32{published, published}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := newComponent("web", corev1.ServiceTypeNodePort, 80)
			web.Service.Spec.Ports[0].NodePort = tc.wants
			in := testInputs(testConfig(t, nil), web)
			c := testChallenge()
			r := (&cluster{challenge: c}).reconciler(t)
			var asked []int32
			refusing := interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					port := o.(*corev1.Service).Spec.Ports[0].NodePort
					asked = append(asked, port)
					if n := len(asked); n <= len(tc.errs) && port != 0 {
						return tc.errs[n-1]
					}
					return w.Create(ctx, o, opts...)
				},
			})
			w := apply.Writer{Client: refusing, Live: refusing, Manager: "test"}
			began := time.Now()
			live, err := serviceWriter(tc.published)(t.Context(), w, ownerFor(c), plan(in).Services[0])
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if len(asked) == 0 || asked[0] != tc.asks[0] || asked[len(asked)-1] != tc.asks[1] {
				t.Errorf("it asked for %v", asked)
			}
			if !tc.fails && live.(*corev1.Service).Spec.Ports[0].NodePort != tc.asks[1] {
				t.Errorf("it got %+v", live)
			}
			if tc.asks[1] == 0 && time.Since(began) < releaseTimeout {
				t.Errorf("it was given up after %s", time.Since(began))
			}
		})
	}
}

func TestRefusalsThatAreNotForANodePort(t *testing.T) {
	for name, err := range map[string]error{
		"none":      nil,
		"no answer": errors.New("connection refused"),
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "s", errors.New("quota")),
		"of the second port": apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "s",
			field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(1).Child("nodePort"), 30080, "taken")}),
	} {
		if nodePortRefused(err) {
			t.Errorf("%s: it is reported as one", name)
		}
	}
}
