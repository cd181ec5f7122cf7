// Package usage counts the builds of a Project and the amounts that it asks for, in its status. It is pure: nothing is counted in memory, so
// that all counts survive restarts.
package usage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// maxCounted is how many counted builds a status has. A build is counted before its end is recorded in its Deployment. If the latter fails, it
// is offered again, within seconds.
const maxCounted = 100

// Build is a build that has ended.
type Build struct {
	// Run is the name of its PipelineRun.
	Run            string
	Started, Ended time.Time
	Succeeded      bool
	ImageBytes     int64
}

// Seconds is how long the build took, in whole seconds. The clocks of two machines may differ: it is never negative.
func (b Build) Seconds() int64 { return max(int64(b.Ended.Sub(b.Started)/time.Second), 0) }

// key identifies a build in its namespace: a run that was deleted may be started again under its name.
func (b Build) key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", b.Run, b.Started.Unix()))
	return hex.EncodeToString(sum[:8])
}

// AddBuild counts a build, unless it has been counted. limits are the limits of its step that builds. All lists are cloned before
// they change, since a copy of the status may share them.
func AddBuild(u *kibashipv1.ProjectUsage, b Build, limits corev1.ResourceList) (added bool) {
	if slices.Contains(u.CountedBuilds, b.key()) {
		return false
	}
	u.CountedBuilds = newest(append(slices.Clone(u.CountedBuilds), b.key()), maxCounted)
	days := slices.Clone(u.Builds)
	index, found := slices.BinarySearchFunc(days, dateText(b.Ended), func(d kibashipv1.BuildDay, date string) int { return cmp.Compare(d.Date, date) })
	if !found {
		days = slices.Insert(days, index, kibashipv1.BuildDay{Date: dateText(b.Ended)})
	}
	day := &days[index]
	if b.Succeeded {
		day.Succeeded++
	} else {
		day.Failed++
	}
	day.Seconds += b.Seconds()
	day.ImageBytes += b.ImageBytes
	day.LimitSeconds = multiplied(day.LimitSeconds, limits, b.Seconds())
	u.Builds = newest(days, kibashipv1.UsageDays)
	return true
}

// Now is what a Project has and asks for at a time.
type Now struct {
	Applications, Deployments int32
	Asked                     corev1.ResourceList
}

// Update counts the amounts of the time until now, and records the current ones. It changes nothing where nothing has changed since, on the
// same day: the amounts of a day are known at its end.
func Update(u *kibashipv1.ProjectUsage, current Now, now time.Time) {
	now = now.Truncate(time.Second)
	same := u.Applications == current.Applications && u.Deployments == current.Deployments && equality.Semantic.DeepEqual(u.Asked, current.Asked)
	if u.CountedUntil != nil && (!same || dateText(u.CountedUntil.Time) != dateText(now)) {
		count(u, now)
	}
	u.Applications, u.Deployments, u.Asked = current.Applications, current.Deployments, current.Asked
	if unused(u) {
		u.CountedUntil = nil
		return
	}
	if u.CountedUntil == nil {
		u.CountedUntil = &metav1.Time{Time: now}
	}
	addDay(u, u.CountedUntil.Time, 0)
}

// count adds the time since the last count to the days that it belongs to. A clock that goes back adds nothing. A gap that is
// longer than the days that are kept counts from their begin.
func count(u *kibashipv1.ProjectUsage, now time.Time) {
	from := u.CountedUntil.Time
	if limit := now.AddDate(0, 0, -kibashipv1.UsageDays); from.Before(limit) {
		from = limit
	}
	for from.Before(now) {
		to := NextDay(from)
		if now.Before(to) {
			to = now
		}
		addDay(u, from, int64(to.Sub(from)/time.Second))
		from = to
	}
	if u.CountedUntil.Time.Before(now) {
		u.CountedUntil = &metav1.Time{Time: now}
	}
}

// addDay adds what is asked for during some seconds to a day, and the numbers of objects.
func addDay(u *kibashipv1.ProjectUsage, moment time.Time, seconds int64) {
	days := slices.Clone(u.Days)
	index, found := slices.BinarySearchFunc(days, dateText(moment), func(d kibashipv1.UsageDay, date string) int { return cmp.Compare(d.Date, date) })
	if !found {
		days = slices.Insert(days, index, kibashipv1.UsageDay{Date: dateText(moment)})
	}
	day := &days[index]
	day.Applications, day.Deployments = max(day.Applications, u.Applications), max(day.Deployments, u.Deployments)
	day.AskedSeconds = multiplied(day.AskedSeconds, u.Asked, seconds)
	u.Days = newest(days, kibashipv1.UsageDays)
}

func unused(u *kibashipv1.ProjectUsage) bool {
	return u.Applications == 0 && u.Deployments == 0 && len(u.Asked) == 0
}

// RequeueAfter is the time until the day of a Project is to be counted, zero if there is nothing to count. Projects are spread over an hour, so
// that their statuses are not all written in the same second.
func RequeueAfter(u *kibashipv1.ProjectUsage, project string, now time.Time) time.Duration {
	if u.CountedUntil == nil {
		return 0
	}
	spread := fnv.New32a()
	_, _ = spread.Write([]byte(project)) // it never fails
	due := NextDay(u.CountedUntil.Time).Add(time.Duration(spread.Sum32()%3600) * time.Second)
	return max(due.Sub(now), time.Second)
}

// NextDay returns the end of a day in UTC.
func NextDay(t time.Time) time.Time {
	year, month, day := t.UTC().Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
}

func dateText(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// multiplied adds amounts times seconds to a list.
func multiplied(to, amounts corev1.ResourceList, seconds int64) corev1.ResourceList {
	if seconds <= 0 || len(amounts) == 0 {
		return to
	}
	to = to.DeepCopy()
	if to == nil {
		to = corev1.ResourceList{}
	}
	for name, amount := range amounts {
		product := amount.DeepCopy()
		product.Mul(seconds)
		sum := to[name]
		sum.Add(product)
		to[name] = sum
	}
	return to
}

// newest returns the last items of a list.
func newest[T any](all []T, limit int) []T { return all[max(len(all)-limit, 0):] }

// Sum adds amounts to a list, each of them a text as in the limits of an Application.
func Sum(to corev1.ResourceList, limits kibashipv1.Limits, replicas int64) {
	for name, text := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: limits.CPU, corev1.ResourceMemory: limits.Memory, corev1.ResourceStorage: limits.Storage,
	} {
		amount, err := resource.ParseQuantity(text)
		if err != nil {
			continue // it is not set; the schema admits numbers with a unit alone
		}
		amount.Mul(max(replicas, 1))
		sum := to[name]
		sum.Add(amount)
		to[name] = sum
	}
}
