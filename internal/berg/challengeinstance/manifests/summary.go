package manifests

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

const (
	// shownErrors is the maximum number of errors of a Challenge in one message.
	shownErrors = 5
	// fullSummary is the length in bytes from which a message names no further error.
	fullSummary = conditions.MaxMessage / 2
	// maxField and maxDetail bound the path of a field and the text of an error, in bytes.
	maxField, maxDetail = 192, 512
)

// Summary lists errors of a Challenge in one message without the flag.
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
	if omitted := len(errs) - shown; omitted > 0 {
		text += fmt.Sprintf("; and %d more", omitted)
	}
	return text
}

// brief shortens the values that an error quotes, so that the text behind them remains visible. The flag is removed first:
// a flag that is cut off would not be found.
func brief(e field.Error, flag string) *field.Error {
	redacted := redact.NewRedactor(flag)
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
