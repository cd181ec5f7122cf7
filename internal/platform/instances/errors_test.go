package instances

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A rule of the API, or admission, may quote the flag in what a platform shows to players.
func TestRefusalsDoNotQuoteFlags(t *testing.T) {
	const flag = "flag{only_for_players}"
	kind := schema.GroupKind{Group: "berg.norelect.ch", Kind: "ChallengeInstance"}
	refused := apierrors.NewInvalid(kind, "one", field.ErrorList{field.Invalid(field.NewPath("spec", "flag"), flag, "not with "+flag)})
	got := explain(refused, flag)
	if !Is(got, Invalid) || strings.Contains(got.Error(), "players") || !strings.Contains(got.Error(), "<flag>") {
		t.Error(got)
	}
	if explain(nil, flag) != nil {
		t.Error("no error became one")
	}
	if other := errors.New("no route to host"); !errors.Is(explain(other, flag), other) {
		t.Error("the cause is lost")
	}
}
