package prepull

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// Observed is everything that decides which images are pulled. It is read from caches, and must not
// be changed.
type Observed struct {
	Challenges []*bergv1.Challenge
	// Wanted are the Challenges whose images a platform wants, by their names as labels have them.
	Wanted         map[types.NamespacedName]bool
	Nodes          map[types.UID]*corev1.Node
	RuntimeClasses map[string]*nodev1.RuntimeClass
	// Namespaces are the namespaces in which images are pulled, by the UID of the Challenge. This process has
	// created them.
	Namespaces map[types.UID]*corev1.Namespace
	// Left are namespaces of an earlier operator, or of another user who copied the labels: they are not used.
	Left []*corev1.Namespace
	// Pulls are under way, the first one first.
	Pulls []Pull
	// Blocked says why the namespace of a Challenge cannot be used.
	Blocked map[types.UID]string
}

// Pull is one that is under way.
type Pull struct {
	Challenge  types.UID
	Target     Target
	Deployment *appsv1.Deployment
	Pods       []*corev1.Pod
}

// wants reports whether a platform wants the images of a Challenge.
func (o Observed) wants(c *bergv1.Challenge) bool {
	return o.Wanted[types.NamespacedName{Namespace: c.Namespace, Name: naming.LabelValue(c.Name)}]
}

// observe reads the whole state.
func (r *Reconciler) observe(ctx context.Context) (Observed, error) {
	o := Observed{
		Nodes: map[types.UID]*corev1.Node{}, RuntimeClasses: map[string]*nodev1.RuntimeClass{},
		Namespaces: map[types.UID]*corev1.Namespace{}, Blocked: map[types.UID]string{},
		Wanted: map[types.NamespacedName]bool{},
	}
	var challenges bergv1.ChallengeList
	if err := r.Client.List(ctx, &challenges, client.UnsafeDisableDeepCopy); err != nil {
		return o, err
	}
	for i := range challenges.Items {
		o.Challenges = append(o.Challenges, &challenges.Items[i])
	}
	var registrations corev1.ConfigMapList
	if err := r.Client.List(ctx, &registrations, client.UnsafeDisableDeepCopy, client.HasLabels{bergv1.LabelPrepullChallenge}); err != nil {
		return o, err
	}
	for i := range registrations.Items {
		registration := &registrations.Items[i]
		o.Wanted[types.NamespacedName{Namespace: registration.Namespace, Name: registration.Labels[bergv1.LabelPrepullChallenge]}] = true
	}
	var nodes corev1.NodeList
	// The operator never writes nodes, RuntimeClasses and pods: there is no write of its own to
	// wait for.
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return o, err
	}
	for i := range nodes.Items {
		o.Nodes[nodes.Items[i].UID] = &nodes.Items[i]
	}
	var classes nodev1.RuntimeClassList
	if err := r.Client.List(ctx, &classes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return o, err
	}
	for i := range classes.Items {
		o.RuntimeClasses[classes.Items[i].Name] = &classes.Items[i]
	}
	if err := r.observeNamespaces(ctx, &o); err != nil {
		return o, err
	}
	return o, r.observePulls(ctx, &o)
}

// observeNamespaces sorts the namespaces of pulls into usable ones and others. Only a namespace that this process
// has created is used, because its labels and annotations can be copied; a namespace of an earlier process is
// deleted and created again.
func (r *Reconciler) observeNamespaces(ctx context.Context, o *Observed) error {
	var all corev1.NamespaceList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range all.Items {
		ns := &all.Items[i]
		uid, named := strings.CutPrefix(ns.Name, NamespacePrefix)
		switch {
		case !named:
			continue
		case findChallengeUID(ns) == "":
			o.Blocked[types.UID(uid)] = "Namespace " + ns.Name + " exists and belongs to another owner; it was left untouched: delete it"
			continue
		}
		ours := r.store.created[ns.UID]
		if !ours || ns.DeletionTimestamp != nil {
			o.Blocked[types.UID(uid)] = "Namespace " + ns.Name + " of an earlier pull is being deleted"
			if held := finalizer.HeldBack(ns); held != "" {
				o.Blocked[types.UID(uid)] += ": " + held
			}
		}
		if !ours {
			o.Left = append(o.Left, ns)
			continue
		}
		o.Namespaces[types.UID(uid)] = ns
	}
	return nil
}

// observePulls adds the active pulls with their pods, in an order that is the same in every reconciliation.
func (r *Reconciler) observePulls(ctx context.Context, o *Observed) error {
	var deployments appsv1.DeploymentList
	if err := r.Client.List(ctx, &deployments, client.UnsafeDisableDeepCopy, client.MatchingLabels(OwnershipLabels.Found)); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency, client.MatchingLabels(OwnershipLabels.Found)); err != nil {
		return err
	}
	podsByRegistration := map[types.NamespacedName][]*corev1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[bergv1.PrepullLabel]}
		podsByRegistration[key] = append(podsByRegistration[key], p)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		uid := findChallengeUID(d)
		// Objects in a namespace that is being deleted are deleted with it.
		if ns := o.Namespaces[uid]; uid == "" || d.DeletionTimestamp != nil || ns == nil || ns.DeletionTimestamp != nil {
			continue
		}
		o.Pulls = append(o.Pulls, Pull{Challenge: uid, Target: parseTarget(d), Deployment: d, Pods: podsByRegistration[client.ObjectKeyFromObject(d)]})
	}
	slices.SortFunc(o.Pulls, func(a, b Pull) int { return strings.Compare(string(a.Deployment.UID), string(b.Deployment.UID)) })
	return nil
}
