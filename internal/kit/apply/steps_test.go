package apply

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// diary is what steps have written, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// write replaces Apply. An object named broken is rejected.
func (d *diary) write(_ context.Context, _ Writer, _ ownership.Owner, desired client.Object) (client.Object, error) {
	d.add(desired.GetName())
	if desired.GetName() == "broken" {
		return nil, errors.New("refused")
	}
	return desired, nil
}

func configMaps(names ...string) []*corev1.ConfigMap {
	var out []*corev1.ConfigMap
	for _, name := range names {
		out = append(out, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return out
}

func TestStepsRunInOrder(t *testing.T) {
	d := &diary{}
	allotted := ""
	failures := Steps(t.Context(), Writer{}, ownership.Owner{}, "n", []Step{
		{Condition: "Namespace", Objects: []Set{Only(configMaps("ns")...)}, Write: d.write},
		{
			Condition: "Services", Objects: []Set{Only(configMaps("a", "b")...), Only(configMaps("c")...)}, Write: d.write,
			Then: func(_ context.Context, live []client.Object) error {
				for _, o := range live {
					allotted += o.GetName()
				}
				d.add("then")
				return nil
			},
		},
		{Condition: "Workloads", Plan: func() []Set { return []Set{Only(configMaps("of-" + allotted)...)} }, Write: d.write},
	})
	if len(failures) > 0 {
		t.Error(failures)
	}
	if want := []string{"ns", "a", "b", "c", "then", "of-abc"}; !slices.Equal(d.lines, want) {
		t.Errorf("%v, want %v", d.lines, want)
	}
}

// Each step of a group waits for the others before it ends: if they ran one after the
// other, none would end.
func TestParallelStepsRunConcurrently(t *testing.T) {
	var under sync.WaitGroup
	under.Add(3)
	meet := func(context.Context, []client.Object) error {
		under.Done()
		under.Wait()
		return nil
	}
	if failures := Steps(t.Context(), Writer{}, ownership.Owner{}, "n", []Step{
		{Then: meet}, {Parallel: true, Then: meet}, {Parallel: true, Then: meet},
	}); len(failures) > 0 {
		t.Error(failures)
	}
}

func TestAStepThatFails(t *testing.T) {
	d := &diary{}
	failures := Steps(t.Context(), Writer{}, ownership.Owner{}, "n", []Step{
		{Condition: "Policies", Objects: []Set{Only(configMaps("broken", "not-reached")...)}, Write: d.write, Then: func(context.Context, []client.Object) error {
			t.Error("a failed step is completed")
			return nil
		}},
		{Condition: "Services", Parallel: true, Objects: []Set{Only(configMaps("service")...)}, Write: d.write},
		{Condition: "Routes", Parallel: true, Then: func(context.Context, []client.Object) error { return errors.New("not installed") }},
		{Condition: "Workloads", Objects: []Set{Only(configMaps("not-reached")...)}, Write: d.write},
	})
	if len(failures) != 2 || failures[0].Condition != "Policies" || failures[1].Condition != "Routes" {
		t.Fatalf("failures %v", failures)
	}
	if failures.For("Routes") == nil || failures.For("Services") != nil {
		t.Error(failures)
	}
	slices.Sort(d.lines)
	if want := []string{"broken", "service"}; !slices.Equal(d.lines, want) {
		t.Errorf("%v, want %v", d.lines, want)
	}
}

func TestAPanicOfAStepReachesTheCaller(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it is lost")
		}
	}()
	Steps(t.Context(), Writer{}, ownership.Owner{}, "n", []Step{{}, {Parallel: true, Then: func(context.Context, []client.Object) error { panic("x") }}})
}

func TestReplaceIsForTheStepAlone(t *testing.T) {
	got := map[string]bool{}
	write := func(_ context.Context, w Writer, _ ownership.Owner, desired client.Object) (client.Object, error) {
		got[desired.GetName()] = w.Replace
		return desired, nil
	}
	Steps(t.Context(), Writer{}, ownership.Owner{}, "n", []Step{
		{Objects: []Set{Only(configMaps("one")...)}, Replace: true, Write: write},
		{Objects: []Set{Only(configMaps("two")...)}, Write: write},
	})
	if !got["one"] || got["two"] {
		t.Errorf("replaced: %v", got)
	}
}

func TestGroups(t *testing.T) {
	var sizes []int
	for _, group := range groups([]Step{{}, {Parallel: true}, {}, {}, {Parallel: true}, {Parallel: true}}) {
		sizes = append(sizes, len(group))
	}
	if want := []int{2, 1, 3}; !slices.Equal(sizes, want) {
		t.Errorf("%v, want %v", sizes, want)
	}
	if groups(nil) != nil {
		t.Error("no steps make a group")
	}
	if failures := Steps(t.Context(), Writer{}, ownership.Owner{}, "n", nil); failures != nil {
		t.Error(failures)
	}
}

func TestWhatIsPruned(t *testing.T) {
	scheme := clientscheme.Scheme
	steps := []Step{
		{Objects: []Set{All(configMaps("a")), All[*corev1.Secret](nil)}},
		{Objects: []Set{Only(configMaps("b")...), Only(&corev1.Namespace{})}},
	}
	keys := wantedKeys(scheme, schema.GroupKind{Kind: "ConfigMap"}, steps)
	if len(keys) != 2 || !keys.Has(types.NamespacedName{Name: "a"}) || !keys.Has(types.NamespacedName{Name: "b"}) {
		t.Errorf("wanted %v", keys)
	}
	var lists []string
	for _, step := range steps {
		for _, set := range step.Objects {
			if set.kind == nil {
				continue
			}
			list, err := newList(scheme, set.kind)
			if err != nil {
				t.Fatal(err)
			}
			gvk, err := clientGVK(list)
			if err != nil {
				t.Fatal(err)
			}
			lists = append(lists, gvk.String())
		}
	}
	if want := []string{"/v1, Kind=ConfigMapList", "/v1, Kind=SecretList"}; !slices.Equal(lists, want) {
		t.Errorf("%v, want %v", lists, want)
	}
	if _, err := newList(scheme, &unknown{}); err == nil {
		t.Error("a list of a kind that the scheme does not know")
	}
}

// unknown is a Kind that no scheme knows.
type unknown struct{ appsv1.Deployment }
