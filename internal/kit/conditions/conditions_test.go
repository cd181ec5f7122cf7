package conditions

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func condition(modify ...func(*metav1.Condition)) metav1.Condition {
	c := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllIsWell", Message: "all is well",
		ObservedGeneration: 2, LastTransitionTime: metav1.Time{Time: noon},
	}
	for _, m := range modify {
		m(&c)
	}
	return c
}

func TestUpsert(t *testing.T) {
	var all []metav1.Condition
	Upsert(&all, 1, noon, metav1.Condition{Type: "A", Status: metav1.ConditionFalse, Reason: "No", Message: "no"}, metav1.Condition{Type: "B", Status: metav1.ConditionTrue, Reason: "Yes", Message: "yes"})
	first := append([]metav1.Condition{}, all...)
	if err := Violations(nil, all, 1); err != nil {
		t.Error(err)
	}

	later := noon.Add(time.Minute)
	Upsert(&all, 2, later, metav1.Condition{Type: "A", Status: metav1.ConditionTrue, Reason: "Yes", Message: "yes"}, metav1.Condition{Type: "B", Status: metav1.ConditionTrue, Reason: "StillYes", Message: "yes"})
	if len(all) != 2 {
		t.Fatalf("%d conditions, want 2: %+v", len(all), all)
	}
	if a := all[0]; a.Reason != "Yes" || a.ObservedGeneration != 2 || !a.LastTransitionTime.Time.Equal(later) {
		t.Errorf("a new status is not written whole: %+v", a)
	}
	if b := all[1]; b.Reason != "StillYes" || b.ObservedGeneration != 2 || !b.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("the time moved without the status, or the rest did not: %+v", b)
	}
	if err := Violations(first, all, 2); err != nil {
		t.Error(err)
	}

	second := append([]metav1.Condition{}, all...)
	Upsert(&all, 2, later.Add(-time.Hour), metav1.Condition{Type: "A", Status: metav1.ConditionFalse, Reason: "No", Message: "no"})
	if a := all[0]; a.Reason != "No" || !a.LastTransitionTime.Time.Equal(later) {
		t.Errorf("after the clock was put back: %+v", a)
	}
	if err := Violations(second, all, 2); err != nil {
		t.Error(err)
	}
}

func TestViolations(t *testing.T) {
	is := func(conditions ...metav1.Condition) []metav1.Condition { return conditions }
	for name, tc := range map[string]struct {
		before, after []metav1.Condition
		want          string
	}{
		"nothing":                 {is(condition()), is(condition()), ""},
		"new status, new time":    {is(condition()), is(condition(func(c *metav1.Condition) { c.Status = "False"; c.LastTransitionTime.Time = noon.Add(time.Second) })), ""},
		"new status, same second": {is(condition()), is(condition(func(c *metav1.Condition) { c.Status = "False" })), ""},
		"twice":                   {nil, is(condition(), condition()), "twice"},
		"no reason":               {nil, is(condition(func(c *metav1.Condition) { c.Reason = "" })), "PascalCase"},
		"reason in words":         {nil, is(condition(func(c *metav1.Condition) { c.Reason = "all is well" })), "PascalCase"},
		"reason in camelCase":     {nil, is(condition(func(c *metav1.Condition) { c.Reason = "allIsWell" })), "PascalCase"},
		"no message":              {nil, is(condition(func(c *metav1.Condition) { c.Message = "" })), "message"},
		"a long message":          {nil, is(condition(func(c *metav1.Condition) { c.Message = strings.Repeat("x", MaxMessage+1) })), "bytes"},
		"half a character":        {nil, is(condition(func(c *metav1.Condition) { c.Message = "\xf0" })), "UTF-8"},
		"no status":               {nil, is(condition(func(c *metav1.Condition) { c.Status = "" })), "status"},
		"no generation":           {nil, is(condition(func(c *metav1.Condition) { c.ObservedGeneration = 0 })), "observedGeneration"},
		"a future generation":     {nil, is(condition(func(c *metav1.Condition) { c.ObservedGeneration = 4 })), "observedGeneration"},
		"generation goes back":    {is(condition()), is(condition(func(c *metav1.Condition) { c.ObservedGeneration = 1 })), "went back"},
		"no time":                 {nil, is(condition(func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} })), "lastTransitionTime"},
		"time alone moves":        {is(condition()), is(condition(func(c *metav1.Condition) { c.LastTransitionTime.Time = noon.Add(time.Second) })), "stayed"},
		"time goes back":          {is(condition()), is(condition(func(c *metav1.Condition) { c.Status = "False"; c.LastTransitionTime.Time = noon.Add(-time.Second) })), "went back"},
		"gone":                    {is(condition()), nil, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Violations(tc.before, tc.after, 3)
			switch {
			case err == nil && tc.want != "":
				t.Errorf("nothing found, want %q", tc.want)
			case err != nil && (tc.want == "" || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestAConditionTransitionsByStatusOrReason(t *testing.T) {
	before := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Waiting", Message: "for one"}}
	for name, tc := range map[string]struct {
		c    metav1.Condition
		want bool
	}{
		"the same":       {metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Waiting", Message: "for another"}, false},
		"another reason": {metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Failed"}, true},
		"another status": {metav1.Condition{Type: "Ready", Status: metav1.ConditionUnknown, Reason: "Waiting"}, true},
		"another type":   {metav1.Condition{Type: "Healthy", Status: metav1.ConditionFalse, Reason: "Waiting"}, true},
	} {
		if got := Transitioned(before, tc.c); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
