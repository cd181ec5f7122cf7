package command

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// bulkOptions are the options of commands that change many instances.
type bulkOptions struct {
	dryRun, yes bool
	pace        float64
	timeout     time.Duration
}

// add replaces the global option of the same name, so that its default is longer here.
func (o *bulkOptions) add(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, and change nothing")
	f.Float64Var(&o.pace, "pace", 0, "maximum number of changes per second; 0: as fast as the API server allows")
	f.DurationVar(&o.timeout, retryFlag, 5*time.Minute, retryHelp)
}

// addYes is for commands that ask before they change many.
func (o *bulkOptions) addYes(c *cobra.Command) {
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
}

// showDryRun shows the changes that the command would make; challenges are nil if the command does not change
// Challenges.
func (r *root) showDryRun(verb string, challenges, instances []string) error {
	if r.Format == console.JSON {
		report := bulk.Report{Action: verb, DryRun: true, Total: len(challenges) + len(instances)}
		if challenges == nil {
			return r.WriteJSON(struct {
				bulk.Report
				Instances []string `json:"instances"`
			}{report, instances})
		}
		return r.WriteJSON(struct {
			bulk.Report
			Challenges []string `json:"challenges"`
			Instances  []string `json:"instances"`
		}{report, challenges, instances})
	}
	for _, name := range challenges {
		r.Printf("would %s Challenge %s\n", verb, name)
	}
	for _, name := range instances {
		r.Printf("would %s instance %s\n", verb, name)
	}
	if challenges != nil {
		r.Printf("%d Challenges and ", len(challenges))
	}
	r.Printf("%d instances; nothing was done\n", len(instances))
	return nil
}

// qualifiedNames returns the names of objects with their namespaces.
func qualifiedNames[T client.Object](all []T) []string {
	names := []string{}
	for _, o := range all {
		names = append(names, o.GetNamespace()+"/"+o.GetName())
	}
	return names
}

// patch merges a change into exactly this instance. With a resourceVersion it fails if the instance
// has changed since.
func patch(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, resourceVersion string, change map[string]any) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = i.UID
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	change["metadata"] = metadata
	return patchObject(ctx, c, i, change)
}

// patchObject merges a change, which may name the UID, into an object. If another object has its
// name now, the error is that it was not found. A conflict of resourceVersions stays a conflict.
func patchObject(ctx context.Context, c *cluster.Cluster, o client.Object, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	uid := o.GetUID()
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, body))
	if !apierrors.IsConflict(err) {
		return err
	}
	latest := o.DeepCopyObject().(client.Object)
	if read := c.Get(ctx, client.ObjectKeyFromObject(o), latest); read == nil && latest.GetUID() != uid {
		kind, _ := c.GroupVersionKindFor(o) // it was patched, so the client knows it
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		return apierrors.NewNotFound(resource.GroupResource(), o.GetName())
	}
	return err
}

// patchLatest merges a change that was computed from an instance. After an error it reads the instance
// again, so that the caller can compute the change again: the write may have conflicted, or it may have
// succeeded although the answer was lost.
func patchLatest(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, change map[string]any) error {
	err := patch(ctx, c, i.DeepCopy(), i.ResourceVersion, change)
	if err == nil {
		return nil
	}
	latest := &bergv1.ChallengeInstance{}
	if getErr := c.Get(ctx, client.ObjectKeyFromObject(i), latest); getErr == nil && latest.UID == i.UID {
		*i = *latest
	}
	return err
}

// liveAt returns the live instances of a selection, and the point in time that a text names, on the clock of the API server;
// zero for an empty text. A wrong text is refused before any request. The point in time is computed once, so that all instances
// get the same one, also on a retry.
func (r *root) liveAt(ctx context.Context, s *selection, text string) (to *cluster.Cluster, found []*bergv1.ChallengeInstance, moment time.Time, err error) {
	if err = checkTime(text, r.clock.Now()); err != nil {
		return nil, nil, moment, err
	}
	if to, err = r.open(); err != nil {
		return nil, nil, moment, err
	}
	if found, err = s.find(ctx, to); err == nil && text != "" {
		moment, err = pointInTime(text, to.Now())
	}
	return to, live(found), moment, err
}

// checkTime validates an optional point in time before anything is asked or sent. Its meaning depends
// on the clock of the cluster.
func checkTime(text string, now time.Time) error {
	if text == "" {
		return nil
	}
	_, err := pointInTime(text, now)
	return err
}

// pastTime is how far ahead a time of day may be that is over for today: at 23:00, 01:00 is tonight. A later one was today's.
const pastTime = 12 * time.Hour

// pointInTime reads a duration from now, a time of day, or a date with a time.
func pointInTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(now) {
		return t, nil
	}
	if t, err := time.Parse("15:04", text); err == nil {
		local := now.Local()
		moment := time.Date(local.Year(), local.Month(), local.Day(), t.Hour(), t.Minute(), 0, 0, time.Local)
		if !moment.After(now) {
			moment = moment.AddDate(0, 0, 1)
		}
		if moment.Sub(now) > pastTime {
			return time.Time{}, console.Errorf(console.ExitUsage, "%s is over for today. For tomorrow, write the date: %s", text, moment.Format(time.RFC3339))
		}
		return moment, nil
	}
	return time.Time{}, console.Errorf(console.ExitUsage, "%q: must be a duration such as 30m, a time of day such as 23:30, or a future time such as 2030-01-31T18:00:00Z", text)
}
