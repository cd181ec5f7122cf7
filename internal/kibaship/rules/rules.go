// Package rules says what a Project, an Application and a Deployment must be. It is pure: the
// webhooks refuse by it what comes, and the controllers tell by it what came past them.
package rules

import (
	"fmt"
	"strings"
)

// Violation is a rule that is broken.
type Violation struct {
	// Reason is that of the condition that shows it.
	Reason string
	// Field is the path of the field, as in spec.type.
	Field string
	// Message says what is wrong, and what to do.
	Message string
}

func (v Violation) String() string { return v.Field + ": " + v.Message }

// Violations are those of one object, in the order of the rules.
type Violations []Violation

func (vs Violations) String() string {
	texts := make([]string, len(vs))
	for i, v := range vs {
		texts[i] = v.String()
	}
	return strings.Join(texts, "; ")
}

func violated(reason, field, format string, args ...any) Violation {
	return Violation{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...)}
}
