package revisions

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const namespace = "operator"

type content struct{ Password string }

// cluster is an API server that counts requests, and fails before those that fail accepts.
type cluster struct {
	client.WithWatch
	reads, writes int
	fail          func(verb string) bool
}

var errKilled = errors.New("the operator was killed")

func newCluster() *cluster {
	c := &cluster{fail: func(string) bool { return false }}
	write := func(verb string) error {
		if c.fail(verb) {
			return errKilled
		}
		c.writes++
		return nil
	}
	c.WithWatch = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			c.reads++
			return w.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			c.reads++
			return w.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return errors.Join(write("create"), w.Create(ctx, obj, opts...))
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return errors.Join(write("patch"), w.Patch(ctx, obj, patch, opts...))
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := write("delete"); err != nil {
				return err
			}
			return w.Delete(ctx, obj, opts...)
		},
	})
	return c
}

func (c *cluster) process(now *clocktesting.FakeClock) *Store[content] {
	return NewStore[content](c, c, now, namespace)
}

func (c *cluster) names(t *testing.T) sets.Set[string] {
	t.Helper()
	var all corev1.SecretList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	names := sets.New[string]()
	for n := range all.Items {
		names.Insert(all.Items[n].Name)
	}
	return names
}

func naming(names ...string) Names {
	return func(context.Context) (sets.Set[string], error) { return sets.New(names...), nil }
}

func ensure(t *testing.T, s *Store[content], password string) string {
	t.Helper()
	name, err := s.Ensure(t.Context(), content{password})
	if err != nil || name == "" {
		t.Fatalf("%q, error %v", name, err)
	}
	return name
}

func sweep(t *testing.T, s *Store[content], cached, live Names) {
	t.Helper()
	if err := s.Sweep(t.Context(), cached, live); err != nil {
		t.Fatal(err)
	}
}

func TestOneContentIsStoredOnce(t *testing.T) {
	c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
	first := c.process(now)
	one, other := ensure(t, first, "hunter2"), ensure(t, first, "hunter3")
	if one == other || c.writes != 2 {
		t.Errorf("%s and %s, %d writes", one, other, c.writes)
	}
	c.reads, c.writes = 0, 0
	if again := ensure(t, first, "hunter2"); again != one || c.reads+c.writes != 0 {
		t.Errorf("%s once more: %s, %d requests", one, again, c.reads+c.writes)
	}

	second := c.process(now)
	for range 2 {
		got, err := second.Read(t.Context(), one)
		if err != nil || got.Password != "hunter2" {
			t.Fatalf("%+v, error %v", got, err)
		}
	}
	if c.reads != 1 {
		t.Errorf("a content was read %d times", c.reads)
	}
	changed, err := second.Read(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	changed.Password = "changed"
	if got, err := second.Read(t.Context(), one); err != nil || got.Password != "hunter2" {
		t.Errorf("a caller changed what is stored: %+v, error %v", got, err)
	}
	if again := ensure(t, second, "hunter2"); again != one || c.writes != 1 {
		t.Errorf("the next process uses %s instead of %s, with %d writes", again, one, c.writes)
	}
}

// Whoever reads a status must not be able to find a password by trying.
func TestANameTellsNothingOfTheContent(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Now())
	if a, b := ensure(t, newCluster().process(now), "hunter2"), ensure(t, newCluster().process(now), "hunter2"); a == b {
		t.Errorf("%s follows from the content", a)
	}
}

func TestOnlyContentWithItsHashIsUsed(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Now())
	for name, forge := range map[string]func(*corev1.Secret){
		"another content": func(s *corev1.Secret) { s.Data[keyContent] = []byte(`{"Password":"forged"}`) },
		"another salt":    func(s *corev1.Secret) { s.Data[keySalt] = []byte("forged") },
		"no content":      func(s *corev1.Secret) { s.Data = nil },
		"another type":    func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
	} {
		c := newCluster()
		stored := ensure(t, c.process(now), "hunter2")
		secret := &corev1.Secret{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: stored}, secret); err != nil {
			t.Fatal(err)
		}
		forged := secret.DeepCopy()
		forged.ResourceVersion, forged.UID = "", ""
		forge(forged)
		if err := errors.Join(c.Delete(t.Context(), secret), c.Create(t.Context(), forged)); err != nil {
			t.Fatal(err)
		}
		next := c.process(now)
		unreadable := (*UnreadableError)(nil)
		if got, err := next.Read(t.Context(), stored); !errors.As(err, &unreadable) || !unreadable.Altered {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
		if again := ensure(t, next, "hunter2"); again == stored {
			t.Errorf("%s: the Secret is named for another instance", name)
		}
		now.Step(2 * graceTime)
		sweep(t, next, naming(), naming())
		if !c.names(t).Has(stored) {
			t.Errorf("%s: a foreign Secret was deleted", name)
		}
	}
	unreadable := (*UnreadableError)(nil)
	if _, err := newCluster().process(now).Read(t.Context(), NamePrefix+"none"); !errors.As(err, &unreadable) || unreadable.Altered {
		t.Errorf("a missing Secret: error %v", err)
	}
}

func TestUnusedSecretsAreDeleted(t *testing.T) {
	c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
	s := c.process(now)
	used, unused := ensure(t, s, "used"), ensure(t, s, "unused")
	sweep(t, s, naming(used), naming(used))
	if !c.names(t).HasAll(used, unused) {
		t.Fatalf("left are %v: a status may be about to name one", c.names(t))
	}
	now.Step(graceTime + time.Second)
	fresh := ensure(t, s, "fresh")
	c.reads = 0
	sweep(t, s, naming(used), naming(used))
	if got := c.names(t); !got.Equal(sets.New(used, fresh)) {
		t.Errorf("left are %v", got)
	}
	if again := ensure(t, s, "unused"); again == unused {
		t.Error("the name of a Secret that was deleted is used")
	}
	now.Step(graceTime + time.Second)
	next := c.process(now)
	sweep(t, next, naming(used), naming(used))
	if !c.names(t).Has(fresh) {
		t.Error("a new process deletes what the former one may have named a moment ago")
	}
	now.Step(graceTime + time.Second)
	sweep(t, next, naming(used), naming(used))
	if got := c.names(t); !got.Equal(sets.New(used)) {
		t.Errorf("left are %v", got)
	}
}

// The cache may not show a status yet. The API server decides.
func TestANamedSecretStays(t *testing.T) {
	c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
	s := c.process(now)
	used := ensure(t, s, "used")
	now.Step(graceTime + time.Second)
	sweep(t, s, naming(), naming(used))
	if !c.names(t).Has(used) {
		t.Fatal("it was deleted by a cache that lags behind")
	}
	if got, err := s.Read(t.Context(), used); err != nil || got.Password != "used" {
		t.Errorf("%+v, error %v", got, err)
	}
	failed := errors.New("no answer")
	if err := s.Sweep(t.Context(), naming(), func(context.Context) (sets.Set[string], error) { return nil, failed }); !c.names(t).Has(used) {
		t.Errorf("it was deleted without an answer: error %v", err)
	}
}

// A leader that is deposed between its decision and its deletion deletes nothing that its successor uses.
func TestADeposedLeaderDeletesNothingThatIsUsed(t *testing.T) {
	c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
	old := c.process(now)
	stored := ensure(t, old, "hunter2")
	now.Step(graceTime + time.Second)
	var successors string
	err := old.Sweep(t.Context(), naming(), func(context.Context) (sets.Set[string], error) {
		successors = ensure(t, c.process(now), "hunter2") // after the old leader has listed
		return sets.New[string](), nil
	})
	if !c.names(t).Has(successors) {
		t.Errorf("%s was deleted, error %v", successors, err)
	}
	if successors != stored || !apierrors.IsConflict(err) {
		t.Errorf("%s instead of %s, error %v: this proves nothing", successors, stored, err)
	}
}

func TestADeletedSecretIsRestored(t *testing.T) {
	c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
	s := c.process(now)
	used := ensure(t, s, "used")
	secret := &corev1.Secret{}
	if err := errors.Join(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: used}, secret), c.Delete(t.Context(), secret)); err != nil {
		t.Fatal(err)
	}
	sweep(t, s, naming(used), naming(used))
	if got, err := c.process(now).Read(t.Context(), used); err != nil || got.Password != "used" {
		t.Errorf("%+v, error %v", got, err)
	}
}

// After every end of the operator the next one finds what is named, and deletes what is not.
func TestTheOperatorMayEndAnywhere(t *testing.T) {
	for kill := range 4 {
		c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
		named := ensure(t, c.process(now), "named")
		writes := 0
		c.fail = func(string) bool { writes++; return writes > kill }
		s := c.process(now)
		_, _ = s.Ensure(t.Context(), content{"named"})
		_, _ = s.Ensure(t.Context(), content{"another"})
		now.Step(graceTime + time.Second)
		_ = s.Sweep(t.Context(), naming(named), naming(named))

		c.fail = func(string) bool { return false }
		next := c.process(now)
		if got, err := next.Read(t.Context(), named); err != nil || got.Password != "named" {
			t.Errorf("killed at write %d: %+v, error %v", kill, got, err)
		}
		for range 2 {
			sweep(t, next, naming(named), naming(named))
			now.Step(graceTime + time.Second)
		}
		sweep(t, next, naming(named), naming(named))
		if got := c.names(t); !got.Equal(sets.New(named)) {
			t.Errorf("killed at write %d: left are %v", kill, got)
		}
	}
}

func TestContentIsReadAsItWasStored(t *testing.T) {
	c, now := newCluster(), clocktesting.NewFakeClock(time.Now())
	want := content{"<&>\u2028 ä"}
	name, err := c.process(now).Ensure(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.process(now).Read(t.Context(), name); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, error %v", got, err)
	}
}
