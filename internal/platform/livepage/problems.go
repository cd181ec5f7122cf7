package livepage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// maxFolded is the number of instances that a problem lists. The search finds the others.
const maxFolded = 50

// Alert is a danger for the whole event. It is the first line of the page.
type Alert struct {
	Text     string
	Since    time.Time
	Remedies []view.Remedy
}

// Problem is one cause for which instances of one Challenge do not run.
type Problem struct {
	// ID of its element.
	ID, Challenge string
	Sentence      string
	// Since is the oldest time of one of its instances; zero for a Challenge.
	Since    time.Time
	Count    int
	Rows     []*Row
	Remedies []view.Remedy
}

// More is the number of instances that are not listed.
func (p *Problem) More() int { return p.Count - len(p.Rows) }

// findAlerts returns the dangers for the event: an operator that is dead, or does not answer. seen is the last renewal of its lease, and
// namespace its own.
func findAlerts(rows []*Row, seen time.Time, namespace string, now time.Time) (all []Alert) {
	remedies := []view.Remedy{
		{Text: "Look at the operator's pods:", Command: "kubectl get pods -n " + view.Quote(namespace)},
		{Text: "Find what is wrong:", Command: "kubectl berg doctor"},
	}
	if !seen.IsZero() && now.Sub(seen) > silence {
		all = append(all, Alert{"The operator is not running, or cannot reach the API server: no replica renews the lease. No instance starts, ends or is repaired.", seen, remedies})
	}
	unseen, oldest := 0, now
	for _, r := range rows {
		if r.Unseen() && now.Sub(r.Created) > silence {
			unseen++
			oldest = earlier(oldest, r.Created)
		}
	}
	if unseen > 0 && len(all) == 0 {
		all = append(all, Alert{fmt.Sprintf("The operator does not answer: %s without a status for more than %s.", instancesText(unseen), span(silence)), oldest, remedies})
	}
	return all
}

func instancesText(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// findProblems groups the instances of a namespace that need a person, or that are late, by their Challenge and cause, and adds the
// Challenges that are not accepted.
func findProblems(rows []*Row, challenges map[string]view.Challenge, now time.Time) []*Problem {
	groups := map[string]*Problem{}
	first := map[string]*Row{}
	for _, r := range rows {
		late := r.Overdue(now)
		if !r.NeedsPerson && late == nil {
			continue
		}
		kind := cmp.Or(string(r.Cause), string(r.Reason))
		if !r.NeedsPerson {
			kind = late.Alert
		}
		id := problemID(r.Challenge, kind)
		p := groups[id]
		if p == nil {
			p = &Problem{ID: id, Challenge: r.Challenge, Since: r.Created}
			groups[id] = p
		}
		p.Count++
		p.Rows = append(p.Rows, r)
		p.Since = earlier(p.Since, r.Created)
		if known := first[id]; known == nil || r.ID() < known.ID() {
			first[id] = r
		}
	}
	all := make([]*Problem, 0, len(groups))
	for id, p := range groups {
		r := first[id]
		p.Sentence, p.Remedies = describe(r, now)
		slices.SortFunc(p.Rows, func(a, b *Row) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
		p.Rows = p.Rows[:min(len(p.Rows), maxFolded)]
		all = append(all, p)
	}
	for _, c := range challenges {
		if c.Problem != "" {
			all = append(all, &Problem{
				ID: problemID(c.Name, "not accepted"), Challenge: c.Name, Sentence: "The Challenge is not accepted. " + c.Problem,
				Remedies: []view.Remedy{{Text: "After you correct it, try it with an instance of your own:", Command: "kubectl berg try " + view.Quote(c.Name) + " -n " + view.Quote(c.Namespace)}},
			})
		}
	}
	slices.SortFunc(all, func(a, b *Problem) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Challenge, b.Challenge), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// describe returns what is wrong with an instance and its like, and what helps.
func describe(r *Row, now time.Time) (sentence string, remedies []view.Remedy) {
	sentence, remedies = r.Sentence, r.CauseRemedies()
	if late := r.Overdue(now); late != nil && !r.NeedsPerson {
		sentence = late.Sentence + strings.TrimPrefix(" "+r.Sentence, " "+view.Explain(bergv1.CauseNotReadyYet).Organisers)
	}
	if len(remedies) == 0 {
		remedies = r.Remedies()[:1]
	}
	return sentence, remedies
}

func problemID(challenge, kind string) string {
	sum := sha256.Sum256([]byte(challenge + "\x00" + kind))
	return "problem-" + hex.EncodeToString(sum[:6])
}
