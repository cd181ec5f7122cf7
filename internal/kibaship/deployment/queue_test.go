package deployment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheQueueIsFairToProjects(t *testing.T) {
	of := func(project, name string, minute int) queued {
		return queued{Deployment: types.NamespacedName{Namespace: project, Name: name}, Since: now.Add(time.Duration(minute) * time.Minute)}
	}
	crowd := []queued{of("a", "1", 1), of("a", "2", 2), of("a", "3", 3)}
	for title, tc := range map[string]struct {
		own     queued
		waiting []queued
		running []types.NamespacedName
		want    int
	}{
		"alone":                            {of("b", "1", 9), nil, nil, 0},
		"one that has waited longer":       {of("b", "1", 9), crowd[:1], nil, 1},
		"a crowd of another Project":       {of("b", "1", 9), crowd, nil, 1},
		"a Project that builds already":    {of("b", "1", 9), crowd, []types.NamespacedName{{Namespace: "a", Name: "0"}}, 0},
		"builds of its own Project":        {of("b", "1", 0), crowd, []types.NamespacedName{{Namespace: "b", Name: "0"}}, 1},
		"the last of its own Project":      {of("a", "4", 4), crowd, nil, 3},
		"of the same moment, by the name":  {of("a", "4", 1), crowd[:1], nil, 1},
		"one that has waited the shortest": {crowd[0], crowd[1:], nil, 0},
	} {
		order := inOrder(append(slices.Clone(tc.waiting), tc.own), tc.running, nil)
		if got := slices.Index(order, tc.own); got != tc.want {
			t.Errorf("%s: %d go first, want %d", title, got, tc.want)
		}
	}
}

func TestAClassLimitsTheBuildsOfAProject(t *testing.T) {
	waits := func(project, name string, minute int) queued {
		return queued{Deployment: types.NamespacedName{Namespace: project, Name: name}, Since: now.Add(time.Duration(minute) * time.Minute)}
	}
	crowd := []queued{waits("a", "1", 1), waits("a", "2", 2), waits("a", "3", 3), waits("b", "1", 9)}
	building := []types.NamespacedName{{Namespace: "a", Name: "0"}, {Namespace: "b", Name: "0"}, {Namespace: "b", Name: "00"}}
	for title, tc := range map[string]struct {
		limits  map[string]classLimit
		running []types.NamespacedName
		want    string
	}{
		"no class":                         {nil, building, "a1 a2 b1 a3"},
		"one more":                         {map[string]classLimit{"a": {"basic", 2}}, building, "a1 b1"},
		"none: others do not wait for it":  {map[string]classLimit{"a": {"basic", 1}}, building, "b1"},
		"fewer than run already":           {map[string]classLimit{"a": {"basic", 1}, "b": {"basic", 1}}, building, ""},
		"the one that has waited, of many": {map[string]classLimit{"a": {"basic", 1}}, nil, "a1 b1"},
	} {
		var got []string
		for _, q := range inOrder(crowd, tc.running, tc.limits) {
			got = append(got, q.Deployment.Namespace+q.Deployment.Name)
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: the order is %q, want %q", title, text, tc.want)
		}
	}
	if text := (classLimit{"basic", 2}).message(); !strings.Contains(text, "ProjectClass basic allows 2") {
		t.Error(text)
	}
}

func TestAPlaceInTheQueue(t *testing.T) {
	for ahead, want := range map[int]string{0: "number 1 in", 4: "number 5 in", maxPosition: "more than 20", 500: "more than 20"} {
		if got := queueMessage(3, ahead); !strings.Contains(got, want) || !strings.Contains(got, "BUILD_CONCURRENCY allows 3") {
			t.Errorf("%d: %s", ahead, got)
		}
	}
}
