package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/internal/berg/prepull"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// What is off unless it is asked for takes part in the storm too: a bound on the instances that run,
// checks by solver, images that are pulled ahead, and records of instances that have ended.

const (
	// records and checks are the namespaces of ChallengeInstanceRecords and ChallengeChecks.
	records, checks = "berg-records", "chaos-checks"
	// parallelChecks is how many checks may be made at a time.
	parallelChecks = 2
)

// roomFor is how many of these lives may be started at a time: those that survive, since no client
// else could start at the same time, and a few of the others.
func roomFor(lives []*life) int {
	room := max(6, len(lives)/4)
	for _, l := range lives {
		if l.ends == survives {
			room++
		}
	}
	return room
}

// roomForFew is how many instances of the Challenge few may be started at a time: those that survive,
// and two others.
func roomForFew(lives []*life) int {
	room := 2
	for _, l := range lives {
		if l.challenge == few && l.ends == survives {
			room++
		}
	}
	return room
}

// optional are the settings that turn all of it on.
func optional(lives []*life) []string {
	return []string{
		fmt.Sprintf("CHALLENGE_MAX_INSTANCES=%d", roomFor(lives)), fmt.Sprintf("CHECK_CONCURRENCY=%d", parallelChecks),
		"IMAGE_PREPULL_LEAD=30m", "RECORD_RETENTION=24h", "RECORD_NAMESPACE=" + records,
	}
}

// setUpOptional gives the operators the rights, and something to check.
func (w *world) setUpOptional(ctx context.Context) error {
	for _, folder := range []string{"config/berg/check", "config/berg/prepull", "config/berg/record"} {
		if err := installed.Folder(ctx, w.client, folder, "chaos"); err != nil {
			return err
		}
	}
	if err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: checks}}); err != nil {
		return err
	}
	// More than may be made at a time, and two of one Challenge, which must not be. On simulated nodes a solver runs
	// until its time is over.
	for name, challenge := range map[string]string{"web-1": "web", "web-2": "web", "plain-1": "plain", "plain-2": "plain", "few": few} {
		c := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: checks, Name: name}, Spec: bergv1.ChallengeCheckSpec{
			ChallengeRef: bergv1.ChallengeReference{Namespace: arena, Name: challenge},
			Solver:       bergv1.Solver{Image: "example.com/solver:1"}, Timeout: "10s",
		}}
		if err := w.retry(ctx, func(ctx context.Context) error { return w.client.Create(ctx, c) }); err != nil {
			return fmt.Errorf("create ChallengeCheck %s: %w", name, err)
		}
	}
	return nil
}

// crowd counts by UID what may be there only so often, as versions of one kind tell of it.
type crowd struct {
	most, peak int
	there      map[types.UID]string
}

func newCrowd(most int) *crowd { return &crowd{most: most, there: map[types.UID]string{}} }

// see notes whether an object belongs to the crowd, and returns why it may not.
func (c *crowd) see(uid types.UID, name string, belongs bool) error {
	if !belongs {
		delete(c.there, uid)
		return nil
	}
	c.there[uid] = name
	c.peak = max(c.peak, len(c.there))
	if len(c.there) > c.most {
		return fmt.Errorf("it is one of %d, of which there may be %d", len(c.there), c.most)
	}
	return nil
}

// keep forgets all but those that are there.
func (c *crowd) keep(there map[types.UID]bool) {
	for uid := range c.there {
		if !there[uid] {
			delete(c.there, uid)
		}
	}
}

// checksEnd deletes the ChallengeChecks, and checks that nothing is left of them.
func (w *world) checksEnd(ctx context.Context) error {
	var all bergv1.ChallengeCheckList
	if err := w.client.List(ctx, &all, client.InNamespace(checks)); err != nil {
		return err
	}
	made := 0
	for i := range all.Items {
		made += len(all.Items[i].Status.History)
	}
	w.note("%d checks by solver were made to their end", made)
	err := w.retry(ctx, func(ctx context.Context) error {
		return w.client.DeleteAllOf(ctx, &bergv1.ChallengeCheck{}, client.InNamespace(checks))
	})
	if err != nil {
		return err
	}
	return w.eventually(ctx, func(ctx context.Context) error {
		var instances bergv1.ChallengeInstanceList
		err := errors.Join(w.client.List(ctx, &all, client.InNamespace(checks)), w.client.List(ctx, &instances, client.InNamespace(checks)))
		if err != nil {
			return err
		}
		if left := len(all.Items) + len(instances.Items); left > 0 {
			return fmt.Errorf("%d ChallengeChecks and instances of theirs are left", left)
		}
		return w.noNamespace(ctx, check.NamespacePrefix)
	})
}

// pulled waits until the images that are pulled ahead are there, and nothing of the pull is.
func (w *world) pulled(ctx context.Context) error {
	return w.eventually(ctx, func(ctx context.Context) error {
		c := &bergv1.Challenge{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: arena, Name: pulledAhead}, c); err != nil {
			return err
		}
		for _, condition := range c.Status.Conditions {
			if condition.Type == bergv1.ChallengeConditionImagesReady && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == c.Generation {
				return w.noNamespace(ctx, prepull.NamespacePrefix)
			}
		}
		return fmt.Errorf("the images of Challenge %s are not there: %+v", pulledAhead, c.Status.Conditions)
	})
}

// noNamespace is an error while there is a namespace whose name begins so.
func (w *world) noNamespace(ctx context.Context, prefix string) error {
	var namespaces corev1.NamespaceList
	if err := w.client.List(ctx, &namespaces); err != nil {
		return err
	}
	for _, ns := range namespaces.Items {
		if strings.HasPrefix(ns.Name, prefix) {
			return fmt.Errorf("namespace %s is left: %s", ns.Name, ns.Status.Phase)
		}
	}
	return nil
}

// recorded checks the records, and that they go when their time is over. Those that ended in calm
// have one each.
func (w *world) recorded(ctx context.Context) error {
	var all bergv1.ChallengeInstanceRecordList
	if err := w.client.List(ctx, &all, client.InNamespace(records)); err != nil {
		return err
	}
	errs := []error{w.observer.checkRecords(all.Items)}
	names := map[string]bool{}
	for i := range all.Items {
		names[all.Items[i].Spec.Instance.Name] = true
	}
	for _, l := range w.lives {
		if strings.HasPrefix(l.name, countedPrefix) && !names[l.name] {
			errs = append(errs, fmt.Errorf("%s ended in calm, and there is no record of it", l.name))
		}
	}
	w.note("%d records of instances that have ended", len(all.Items))
	for i := range all.Items {
		over := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, bergv1.AnnotationDeleteAt, time.Now().UTC().Format(time.RFC3339))
		err := w.retry(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(w.client.Patch(ctx, &all.Items[i], client.RawPatch(types.MergePatchType, []byte(over))))
		})
		errs = append(errs, err)
	}
	return errors.Join(append(errs, w.eventually(ctx, func(ctx context.Context) error {
		if err := w.client.List(ctx, &all, client.InNamespace(records)); err != nil || len(all.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d records are left after their time", len(all.Items))
	}))...)
}

// checkRecords returns what cannot be in records: flags, two of one instance, instances that never
// were.
func (w *observer) checkRecords(all []bergv1.ChallengeInstanceRecord) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	of := map[string]string{}
	for _, r := range all {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		uid := r.Spec.Instance.UID
		switch {
		case strings.Contains(string(text), flagPrefix):
			errs = append(errs, fmt.Errorf("record %s has a flag", r.Name))
		case of[uid] != "":
			errs = append(errs, fmt.Errorf("records %s and %s are of the same instance", of[uid], r.Name))
		case !w.met[types.UID(uid)]:
			errs = append(errs, fmt.Errorf("record %s is of instance %s, which no watch has shown", r.Name, uid))
		}
		of[uid] = r.Name
	}
	return errors.Join(errs...)
}
