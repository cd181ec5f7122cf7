package livepage

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Row is an instance as the page shows it. It has no field for a flag.
type Row struct {
	view.Row
	// Use is how players have used it.
	Use view.Use
	// Changed is the time of the last change that the page has seen, and version its number.
	Changed time.Time
	version uint64
}

// Filter chooses rows.
type Filter struct {
	// Text is a part of the name, the owner, the challenge or the address, in lower case.
	Text string
	// Challenge and State are exact; "" is any.
	Challenge string
	State     view.State
}

func (f Filter) matches(r *Row) bool {
	return (f.Challenge == "" || r.Challenge == f.Challenge) && (f.State == "" || r.State == f.State) &&
		f.in(append([]string{r.Name, r.Player(), r.Challenge, string(r.Cause)}, r.Addresses()...)...)
}

// matchesEnded is matches for an instance that has ended, which has no state.
func (f Filter) matchesEnded(ended Ended) bool {
	return (f.Challenge == "" || f.Challenge == ended.Challenge) && f.in(ended.Name, ended.Owner, ended.Challenge)
}

func (f Filter) in(texts ...string) bool {
	return f.Text == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), f.Text) })
}

// same reports whether the page shows two rows alike.
func same(a, b *Row) bool { return reflect.DeepEqual(a.Row, b.Row) }
