package conditions

import (
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pascalCase is how a reason is written. The API conventions ask for CamelCase:
// https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
var pascalCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// Violations returns the violations of the API conventions by the conditions that a resource has
// after a write, given the conditions before it and its metadata.generation; nil for none. It is
// for tests, which call it with every pair of successive versions.
func Violations(before, after []metav1.Condition, generation int64) error {
	var errs []error
	violation := func(c metav1.Condition, format string, args ...any) {
		errs = append(errs, fmt.Errorf("condition %s: %s", c.Type, fmt.Sprintf(format, args...)))
	}
	seen := map[string]bool{}
	for _, c := range after {
		if seen[c.Type] {
			violation(c, "is there twice")
		}
		seen[c.Type] = true
		if !pascalCase.MatchString(c.Reason) {
			violation(c, "reason %q is not in PascalCase", c.Reason)
		}
		if c.Message == "" {
			violation(c, "has no message")
		}
		if Bound(c.Message) != c.Message {
			violation(c, "has a message of %d bytes, or one that is no UTF-8", len(c.Message))
		}
		if c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse && c.Status != metav1.ConditionUnknown {
			violation(c, "status %q", c.Status)
		}
		if c.ObservedGeneration < 1 || c.ObservedGeneration > generation {
			violation(c, "observedGeneration %d, generation %d", c.ObservedGeneration, generation)
		}
		if c.LastTransitionTime.IsZero() {
			violation(c, "has no lastTransitionTime")
		}
		old := meta.FindStatusCondition(before, c.Type)
		switch {
		case old == nil:
		case c.ObservedGeneration < old.ObservedGeneration:
			violation(c, "observedGeneration went back from %d to %d", old.ObservedGeneration, c.ObservedGeneration)
		case c.Status == old.Status && !c.LastTransitionTime.Equal(&old.LastTransitionTime):
			violation(c, "lastTransitionTime moved from %s to %s, the status stayed %s", old.LastTransitionTime, c.LastTransitionTime, c.Status)
		case c.LastTransitionTime.Before(&old.LastTransitionTime):
			violation(c, "lastTransitionTime went back from %s to %s", old.LastTransitionTime, c.LastTransitionTime)
		}
	}
	for _, c := range before {
		if !seen[c.Type] && c.Type != "Stalled" { // kstatus: it is removed when it no longer holds
			violation(c, "is gone")
		}
	}
	return errors.Join(errs...)
}
