package rules

import (
	"fmt"
	"strings"
)

// Violation is a rule that is broken.
type Violation struct {
	// Reason is the reason of the condition that reports the violation.
	Reason string
	// Field is the path of the field, as in spec.type.
	Field string
	// Message describes the violation and its remedy.
	Message string
}

func (v Violation) String() string { return v.Field + ": " + v.Message }

// Violations are the violations of one object, in the order of the rules.
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
