package manifests

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

const (
	// shownErrors is how many errors of a Challenge one message names, as long as they
	// do not fill it.
	shownErrors = 5
	// fullSummary is from which length, in bytes, it names no further one.
	fullSummary = conditions.MaxMessage / 2
	// maxField and longestDetail are what an error may say of where it is, and of
	// what to do, in bytes.
	maxField, maxDetail = 192, 512
)

func Summary(errs field.ErrorList, flag string) string {
	var text string
	shown := 0
	for shown < min(len(errs), shownErrors) && len(text) < fullSummary {
		if shown > 0 {
			text += "; "
		}
		text += brief(*errs[shown], flag).Error()
		shown++
	}
	if more := len(errs) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// brief returns an error that quotes only the ends of what is long: what to do about it would
// not be seen behind it. The flag is taken out first: half of it would not be found.
func brief(e field.Error, flag string) *field.Error {
	redacted := redact.Of(flag)
	e.Field = conditions.Shorten(redacted(e.Field), maxField)
	e.Detail = conditions.Shorten(redacted(e.Detail), maxDetail)
	value, isText := e.BadValue.(string)
	if !isText {
		encoded, _ := json.Marshal(e.BadValue) // what cannot be encoded is not quoted so
		value = string(encoded)
	}
	if len(value) > conditions.MaxValue {
		e.BadValue = conditions.Value(redacted(value))
	}
	return &e
}
