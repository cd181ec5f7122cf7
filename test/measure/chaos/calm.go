package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// run lets all lives go through the storm, and checks what is left.
func (w *world) run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	w.stop = stop
	w.observer = newObserver(w.client, w.lives)
	w.ended.Go(func() { w.observer.watch(running) })
	for _, r := range w.replicas {
		w.ended.Go(func() {
			if err := r.keep(running); err != nil {
				w.mu.Lock()
				w.keeping = errors.Join(w.keeping, err)
				w.mu.Unlock()
			}
		})
	}
	began := time.Now()
	lived := make(chan error, len(w.lives))
	for _, l := range w.lives {
		go func() { lived <- w.live(ctx, l) }()
	}
	err := w.disruptAll(ctx)
	for range w.lives {
		err = errors.Join(err, <-lived)
	}
	if err != nil {
		return err
	}
	w.note("storm and lives took %s", time.Since(began).Round(time.Second))
	began = time.Now()
	if err := w.eventually(ctx, w.settled); err != nil {
		return err
	}
	w.note("everything was settled %s later", time.Since(began).Round(time.Second))
	for _, step := range []struct {
		name  string
		check func(context.Context) error
	}{
		{"checks leave nothing", w.checksEnd},
		{"images are pulled ahead", w.pulled},
		{"instances are complete", w.complete},
		{"metrics equal reality", w.measured},
		{"metrics count", w.counted},
		{"nothing is left over", w.emptied},
		{"records are in order", w.recorded},
		{"nothing foreign was touched", w.foreignUntouched},
		{"metrics of an empty cluster", w.measured},
		{"operators are in order", w.inOrder},
	} {
		if err := errors.Join(step.check(ctx), w.observer.violations()); err != nil {
			for _, r := range w.replicas {
				r.signal(syscall.SIGQUIT) // what each of its goroutines waits for is in its log
			}
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// settled reports what has not settled: every instance is gone, or lives as it
// should.
func (w *world) settled(ctx context.Context) error {
	var all bergv1.ChallengeInstanceList
	if err := w.client.List(ctx, &all, client.InNamespace(arena)); err != nil {
		return err
	}
	var unsettled []string
	there := map[string]bool{}
	for i := range all.Items {
		instance := &all.Items[i]
		there[instance.Name] = true
		if !w.lifeOf(instance).stays() || instance.Status.Phase != bergv1.PhaseRunning ||
			!meta.IsStatusConditionTrue(instance.Status.Conditions, bergv1.ConditionHealthy) {
			unsettled = append(unsettled, fmt.Sprintf("%s is %s, and %s: %s", instance.Name, instance.Status.Phase, w.lifeOf(instance).ends, conditions(instance)))
		}
	}
	for _, l := range w.lives {
		if l.stays() && !there[l.name] {
			return fmt.Errorf("%s, which survives, is gone", l.name)
		}
	}
	if len(unsettled) > 0 {
		return fmt.Errorf("%d instances are neither complete nor gone:\n%s", len(unsettled), strings.Join(unsettled[:min(len(unsettled), 5)], "\n"))
	}
	return nil
}

func (w *world) lifeOf(i *bergv1.ChallengeInstance) *life {
	for _, l := range w.lives {
		if l.name == i.Name {
			return l
		}
	}
	return &life{ends: "not ours"}
}

// objectKinds are those of which an instance consists.
func objectKinds() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{},
		&policyv1.PodDisruptionBudgetList{}, &gatewayv1.HTTPRouteList{}, &gatewayv1.TLSRouteList{}, &ciliumv2.CiliumNetworkPolicyList{},
	}
}

// complete checks that every living instance has exactly the objects that it must.
func (w *world) complete(ctx context.Context) error {
	var errs []error
	living := 0
	for _, l := range w.lives {
		if !l.stays() {
			continue
		}
		living++
		want := append([]string{"CiliumNetworkPolicy/challenge-network-policy", "ConfigMap/kube-root-ca.crt", "Secret/" + pullSecret}, blueprints[l.challenge].objects...)
		var have []string
		for _, kind := range objectKinds() {
			if err := w.client.List(ctx, kind, client.InNamespace(manifests.NamespaceName(l.owner))); err != nil {
				return err
			}
			gvk, err := w.client.GroupVersionKindFor(kind)
			if err != nil {
				return err
			}
			if err := meta.EachListItem(kind, func(o runtime.Object) error {
				have = append(have, strings.TrimSuffix(gvk.Kind, "List")+"/"+o.(client.Object).GetName())
				return nil
			}); err != nil {
				return err
			}
		}
		// Who was killed between the copy of the pull secret and its Deployment leaves a second one: ADR 0017.
		have = slices.DeleteFunc(have, func(name string) bool { return strings.HasPrefix(name, "Secret/"+pullSecret+"-") })
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(want, have) {
			errs = append(errs, fmt.Errorf("%s (%s) has %q, and must have %q", l.name, l.challenge, have, want))
		}
	}
	w.note("%d instances lived on, complete", living)
	return errors.Join(errs...)
}

// countedPrefix begins the names of instances that live in calm.
const countedPrefix = "counted-"

// counted lets some more instances live, and checks that the leader counts them.
func (w *world) counted(ctx context.Context) error {
	const more = 3
	var before map[string]float64
	var leader *replica
	err := w.eventually(ctx, func(ctx context.Context) (err error) {
		leader, before, err = w.leader(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for i := range more {
		l := &life{name: fmt.Sprintf("%s%d", countedPrefix, i), owner: uuid.NewString(), flag: flagPrefix + "counted}", challenge: "web", timeout: long, ends: survives}
		w.lives = append(w.lives, l)
		w.observer.meet(l)
		if err := w.retry(ctx, func(ctx context.Context) error { return w.client.Create(ctx, l.instance()) }); err != nil {
			return err
		}
	}
	if err := w.eventually(ctx, w.settled); err != nil {
		return err
	}
	for _, l := range w.lives[len(w.lives)-more:] {
		l.ends = expires
		err := w.retry(ctx, func(ctx context.Context) error {
			return w.client.Patch(ctx, l.instance(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeout":"1s"}}`)))
		})
		if err != nil {
			return err
		}
	}
	if err := w.eventually(ctx, w.settled); err != nil {
		return err
	}
	after, err := leader.scrape(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, metric := range []string{
		`berg_challengeinstance_total{challenge="web"}`, `berg_challengeinstance_time_to_running_seconds_count{challenge="web"}`,
		"berg_challengeinstance_timeouts_total", "berg_challengeinstance_duration_seconds_count", "berg_challengeinstance_expiry_delay_seconds_count",
	} {
		if grown := after[metric] - before[metric]; grown != more {
			errs = append(errs, fmt.Errorf("%s: %s grew by %v, not by %d", leader.name, metric, grown, more))
		}
	}
	return errors.Join(errs...)
}

// leads is the metric of the operator that leads.
const leads = `leader_election_master_status{name="` + config.DefaultLeaseName + `"}`

// leader returns the operator that leads, and its metrics.
func (w *world) leader(ctx context.Context) (*replica, map[string]float64, error) {
	var leader *replica
	var metrics map[string]float64
	for _, r := range w.replicas {
		all, err := r.scrape(ctx)
		if err != nil {
			return nil, nil, err
		}
		if all[leads] != 1 {
			continue
		}
		if leader != nil {
			return nil, nil, errors.New("both operators say that they lead")
		}
		leader, metrics = r, all
	}
	if leader == nil {
		return nil, nil, errors.New("no operator leads")
	}
	return leader, metrics, nil
}

// measured waits until the leader's metrics say what there is.
func (w *world) measured(ctx context.Context) error {
	return w.eventually(ctx, func(ctx context.Context) error {
		var all bergv1.ChallengeInstanceList
		if err := w.client.List(ctx, &all); err != nil {
			return err
		}
		want := map[bergv1.Phase]float64{}
		for _, i := range all.Items {
			want[i.Status.Phase]++
		}
		leader, metrics, err := w.leader(ctx)
		if err != nil {
			return err
		}
		for _, phase := range bergv1.Phases {
			got, there := metrics[fmt.Sprintf(`berg_challengeinstance_active{phase="%s"}`, phase)]
			if !there || got != want[phase] {
				return fmt.Errorf("%s reports %v instances (reported: %t) that are %s, there are %v", leader.name, got, there, phase, want[phase])
			}
		}
		return nil
	})
}

// emptied ends what still lives, and checks that nothing is left.
func (w *world) emptied(ctx context.Context) error {
	for _, l := range w.lives {
		if !l.stays() {
			continue
		}
		l.asked.Store(true)
		if err := w.retry(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(w.client.Delete(ctx, l.instance())) }); err != nil {
			return err
		}
	}
	if err := w.eventually(ctx, w.settled); err != nil {
		return err
	}
	foreign := map[string]bool{}
	for _, o := range w.foreign {
		foreign[o.GetNamespace()] = true
	}
	var left []string
	var namespaces corev1.NamespaceList
	if err := w.client.List(ctx, &namespaces); err != nil {
		return err
	}
	for _, ns := range namespaces.Items {
		if strings.HasPrefix(ns.Name, manifests.NamespacePrefix) && !foreign[ns.Name] {
			left = append(left, "Namespace "+ns.Name)
		}
	}
	for _, kind := range objectKinds() {
		if err := w.client.List(ctx, kind); err != nil {
			return err
		}
		if err := meta.EachListItem(kind, func(o runtime.Object) error {
			object := o.(client.Object)
			_, stamped := object.GetAnnotations()[bergv1.AnnotationInstanceUID]
			if stamped || object.GetLabels()[bergv1.LabelManagedBy] == bergv1.ManagedBy && !foreign[object.GetNamespace()] {
				left = append(left, fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName()))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return errors.New(strings.Join(left, ", "))
	}
	return nil
}

// inOrder checks that the operators did not fail in their own right.
func (w *world) inOrder(context.Context) error {
	var errs []error
	for _, r := range w.replicas {
		found, err := r.violations()
		if err != nil {
			return err
		}
		for _, f := range found {
			errs = append(errs, errors.New(f))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(append(errs, w.keeping)...)
}

// close ends the operators and the observer.
func (w *world) close(ctx context.Context) {
	if w.stop == nil {
		return
	}
	var lease coordinationv1.Lease
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: config.DefaultLeaseName}, &lease); err == nil && lease.Spec.LeaseTransitions != nil {
		w.note("the leader changed %d times", *lease.Spec.LeaseTransitions)
	}
	w.stop()
	w.ended.Wait()
	for _, r := range w.replicas {
		r.signal(syscall.SIGKILL)
		r.proxy.gate.Close()
	}
}

// report tells what happened, in figures.
func (w *world) report(out io.Writer) {
	faults := map[fault]int{}
	for _, r := range w.replicas {
		r.proxy.count(faults)
		starts, gaveUp := r.figures()
		w.note("%s was started %d times, and gave up %d times", r.name, starts, gaveUp)
	}
	ends := map[string]int{}
	for _, l := range w.lives {
		ends[string(l.ends)]++
	}
	if w.observer != nil {
		w.observer.mu.Lock()
		w.note("%d versions of instances, Deployments and routes were looked at, in %d stretches", w.observer.versions, w.observer.gaps)
		w.note("there was room for %d instances: at most %d had it at the same time, and %d waited for it", w.observer.started.most, w.observer.started.peak, len(w.observer.queued))
		w.note("there was room for %d of Challenge %s: at most %d had it at the same time", w.observer.startedFew.most, few, w.observer.startedFew.peak)
		if delays := w.observer.delays; len(delays) > 0 {
			slices.Sort(delays)
			w.note("%d expiries: half of them noticed within %s, all within %s", len(delays), delays[len(delays)/2].Round(time.Millisecond), delays[len(delays)-1].Round(time.Millisecond))
		}
		w.observer.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notes {
		fmt.Fprintln(out, n)
	}
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		fmt.Fprintf(out, "%6d  %s\n", w.counts[what], what)
	}
	for _, f := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(out, "%6d  %s\n", faults[f], f)
	}
	for _, e := range slices.Sorted(maps.Keys(ends)) {
		fmt.Fprintf(out, "%6d  lives: %s\n", ends[e], e)
	}
}
