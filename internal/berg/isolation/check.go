package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

const (
	// Interval between two checks, where more than one is wanted.
	Interval = time.Hour
	// startLimit covers the start of a pod on a busy cluster, deleteLimit the
	// deletion of its namespace.
	startLimit  = 2 * time.Minute
	deleteLimit = 2 * time.Minute
	// DefaultSettle is how long a plugin may take to enforce a policy that was
	// written, or to forget one that was deleted; usual is a second.
	DefaultSettle = time.Minute
	pollInterval  = time.Second
	// farewell bounds the deletion when the operator is asked to stop.
	farewell = 5 * time.Second
)

// operatorRole is the ClusterRole of this family, unless OLM has installed the operator.
const operatorRole = "berg-operator-berg"

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=berg-operator-berg,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get,namespace=system
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,namespace=system

// Checker makes the check. It is a runnable of the manager.
type Checker struct {
	// Client must read from the API server.
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Berg
	// Policies returns the kinds of policy that instances are given now.
	Policies func(context.Context) config.NetworkPolicy
	// Pod is the operator's own pod.
	Pod client.ObjectKey
	// Address is the address at which the operator listens, such as :8443.
	Address string
	// Program is the path of the operator's program in its image.
	Program string
	// Latest gets the results.
	Latest *Latest
	// Settle is how long a plugin may take to enforce a policy.
	Settle time.Duration
}

// NeedLeaderElection has the manager run the check in the leader only.
func (c *Checker) NeedLeaderElection() bool { return true }

// Start checks once or, when so configured, again and again. An error of a check is its result, so Start returns none: the
// manager would end the operator for it.
func (c *Checker) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		c.checkOnce(ctx)
		if c.Config.IsolationCheck != config.IsolationCheckInterval {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(Interval):
		}
	}
	return nil
}

// checkOnce makes one check, deletes its objects, and publishes the result as metric, event and condition. If the
// operator is asked to stop, the result is dropped: it may be due to the stop.
func (c *Checker) checkOnce(ctx context.Context) {
	pod, s, err := c.survey(ctx)
	var result Result
	if err != nil {
		result = inconclusive("%v", err)
	} else {
		result = c.check(ctx, s)
		// Also when the operator is asked to stop: nothing would do it later.
		c.cleanUp(ctx, s)
	}
	if ctx.Err() != nil {
		return
	}
	measure(result)
	c.Latest.set(result.Status)
	logger := log.FromContext(ctx).WithName("isolation")
	logger.Info("checked whether network policies are enforced", "verified", result.Status, "reason", result.Reason, "message", result.Message)
	if pod == nil {
		return
	}
	if result.Status != metav1.ConditionTrue {
		c.Events.Eventf(pod, nil, corev1.EventTypeWarning, result.Reason, "CheckIsolation", "%s", result.Message)
	}
	if err := c.setCondition(ctx, pod, result); err != nil {
		logger.Info("cannot write the condition of the operator's pod", "reason", err.Error())
	}
}

// survey finds the operator itself. The pod is nil when it is not found.
func (c *Checker) survey(ctx context.Context) (*corev1.Pod, objects, error) {
	pod := &corev1.Pod{}
	if err := c.Client.Get(ctx, c.Pod, pod); err != nil {
		return nil, objects{}, fmt.Errorf("find the operator's own pod: %w", err)
	}
	if pod.Status.PodIP == "" || pod.Spec.HostNetwork || len(pod.Spec.Containers) == 0 {
		return pod, objects{}, errors.New("the operator's pod has no address of its own to connect to")
	}
	ns := &corev1.Namespace{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, ns); err != nil {
		return pod, objects{}, fmt.Errorf("find the operator's own namespace: %w", err)
	}
	installation, err := c.installation(ctx, ns)
	if err != nil {
		return pod, objects{}, fmt.Errorf("find the operator's own role: %w", err)
	}
	_, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return pod, objects{}, fmt.Errorf("the operator serves nothing to connect to: %w", err)
	}
	return pod, objects{
		Operator: ns.UID, Installation: installation,
		Image:   pod.Spec.Containers[0].Image,
		Program: c.Program,
		Node:    pod.Spec.NodeName,
		Target:  net.JoinHostPort(pod.Status.PodIP, port),
	}, nil
}

// installation returns an object that is deleted when the operator is removed: the role of an installation from a file or by
// Helm, which keeps the namespace, and the namespace otherwise.
func (c *Checker) installation(ctx context.Context, ns *corev1.Namespace) (metav1.OwnerReference, error) {
	role := &metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	err := c.Client.Get(ctx, client.ObjectKey{Name: operatorRole}, role)
	if apierrors.IsNotFound(err) {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}, nil
	}
	return metav1.OwnerReference{APIVersion: role.APIVersion, Kind: role.Kind, Name: role.Name, UID: role.UID}, err
}

// check tries three times. The last try without a policy shows that the policy made the difference,
// and not a target that has stopped. Each step waits for a fact and not for a time: the pod reports by its readiness, and a
// plugin may take up to Settle to follow a change.
func (c *Checker) check(ctx context.Context, s objects) Result {
	if err := c.clear(ctx, s); err != nil {
		return inconclusive("remove what an earlier check has left: %v", err)
	}
	for _, object := range []client.Object{namespace(s), deployment(s)} {
		if err := c.Client.Create(ctx, object); err != nil {
			return inconclusive("create %s: %s", object.GetName(), refusal.Annotate(err.Error()))
		}
	}
	if !c.await(ctx, s, reached, startLimit) {
		return inconclusive("a pod without a network policy did not reach the operator: %s", c.problem(ctx, s))
	}

	cfg := c.Config
	cfg.Challenge.NetworkPolicy = c.Policies(ctx)
	wanted := policies(s, cfg)
	for _, policy := range wanted {
		if err := c.Client.Create(ctx, policy); meta.IsNoMatchError(err) {
			return inconclusive("the cluster does not know the policies of NETWORK_POLICY=%s", c.Config.Challenge.NetworkPolicy)
		} else if err != nil {
			return inconclusive("create the network policy: %s", refusal.Annotate(err.Error()))
		}
	}
	if !c.await(ctx, s, notReached, c.Settle) {
		// The pod must still run and reach the target at this moment. A pod that has ended reaches nothing either, and would not
		// show that the policy was ignored.
		if c.await(ctx, s, reached, pollInterval) {
			return ignored()
		}
		return inconclusive("the pod of the check ended: %s", c.problem(ctx, s))
	}

	for _, policy := range wanted {
		if err := c.Client.Delete(ctx, policy); err != nil {
			return inconclusive("delete the network policy: %v", err)
		}
	}
	if !c.await(ctx, s, reached, c.Settle) {
		return inconclusive("the pod does not reach the operator any more, with the network policy or without: %s", c.problem(ctx, s))
	}
	return enforced()
}

// await reports whether the probe comes to say so in time.
func (c *Checker) await(ctx context.Context, s objects, wanted reach, limit time.Duration) bool {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		pods, err := c.pods(ctx, s)
		return err == nil && readReach(pods) == wanted, nil
	})
	return err == nil
}

// problem explains why the test has no result yet, by the pods or, without any, by the refusal of the API server.
func (c *Checker) problem(ctx context.Context, s objects) string {
	pods, err := c.pods(ctx, s)
	if err != nil {
		return err.Error()
	}
	if len(pods) == 0 {
		var all appsv1.DeploymentList
		if err := c.Client.List(ctx, &all, client.InNamespace(s.namespaceName())); err != nil {
			return err.Error()
		}
		for n := range all.Items {
			if _, message := status.ExplainRefusal(&all.Items[n], c.Clock.Now()); message != "" {
				return "the API server refuses the pod: " + message
			}
		}
	}
	return podProblem(pods)
}

func (c *Checker) pods(ctx context.Context, s objects) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Client.List(ctx, &list, client.InNamespace(s.namespaceName()))
	return list.Items, err
}

// clear deletes the namespace of an earlier check and waits until it is gone.
func (c *Checker) clear(ctx context.Context, s objects) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, deleteLimit, true, func(ctx context.Context) (bool, error) {
		return c.remove(ctx, s)
	})
}

// cleanUp deletes the namespace; the next check waits until it is gone. Its context outlives the stop of the operator for
// farewell, because the next process may have the check switched off, and the pod would run on.
func (c *Checker) cleanUp(ctx context.Context, s objects) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if _, err := c.remove(ctx, s); err != nil {
		log.FromContext(ctx).Info("cannot delete the namespace of the check; the next check does", "namespace", s.namespaceName(), "reason", err.Error())
	}
}

// remove deletes the namespace and reports whether it is gone. Every user who may create namespaces can create one of this name,
// and the UID of the operator's namespace is no secret. The annotation protects a namespace that has this name by chance. Who
// copies the annotation, too, can lose no other namespace than that one.
func (c *Checker) remove(ctx context.Context, s objects) (gone bool, err error) {
	ns := &corev1.Namespace{}
	err = c.Client.Get(ctx, client.ObjectKey{Name: s.namespaceName()}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case !s.owner().Owns(ns):
		return false, fmt.Errorf("namespace %s exists and was not made by this operator: delete it", ns.Name)
	case ns.DeletionTimestamp != nil:
		return false, nil
	}
	// The UID keeps a newer namespace of the same name from being deleted.
	err = c.Client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
	return false, client.IgnoreNotFound(err)
}

// setCondition shows the result on the operator's pod, where kubectl describe
// prints it; the kubelet leaves conditions of others alone. A strategic merge patch merges conditions by their type, so the
// kubelet and this patch do not overwrite each other's, and no version is needed.
func (c *Checker) setCondition(ctx context.Context, pod *corev1.Pod, v Result) error {
	condition := map[string]any{
		"type": ConditionType, "status": v.Status, "reason": v.Reason, "message": v.Message,
		"lastProbeTime": metav1.NewTime(c.Clock.Now()),
	}
	if old := findCondition(pod); old == nil || string(old.Status) != string(v.Status) {
		condition["lastTransitionTime"] = metav1.NewTime(c.Clock.Now())
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return err
	}
	return c.Client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
}

func findCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == ConditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
