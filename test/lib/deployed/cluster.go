// Package deployed is a cluster with a deployed operator, as an administrator sees it: the
// operator's pods, settings and log, and what runs inside and outside of pods. It knows no
// family.
package deployed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// Cluster is a cluster with a deployed operator.
type Cluster struct {
	client.WithWatch

	Rest *rest.Config
	// Plain is for what is no resource: logs, exec and port-forward.
	Plain kubernetes.Interface

	// Operator names the operator's Deployment.
	Operator client.ObjectKey
	// Settings is the operator's environment as deployed.
	Settings map[string]string
	// NodeAddress is the address of a node, for node ports.
	NodeAddress string
}

// World is the cluster under test: a suite has one. It is nil until Begin, and specs do not
// change it.
var World *Cluster

// OperatorLabels select the operator's Deployment and its pods.
var OperatorLabels = client.MatchingLabels{
	"app.kubernetes.io/name": "berg-operator",
	"control-plane":          "controller-manager",
}

// find finds the operator and a node in the cluster of KUBECONFIG.
func find(ctx context.Context) (*Cluster, error) {
	plain, err := kubernetes.NewForConfig(apiserver.Config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{WithWatch: apiserver.Client, Rest: apiserver.Config, Plain: plain}
	if err := c.findOperator(ctx); err != nil {
		return nil, err
	}
	return c, c.findNode(ctx)
}

func (c *Cluster) findOperator(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, OperatorLabels); err != nil {
		return fmt.Errorf("look for the operator: %w", err)
	}
	if n := len(deployments.Items); n != 1 {
		return fmt.Errorf("found %d Deployments with the labels %v, want 1: run `make deploy` first", n, OperatorLabels)
	}
	found := deployments.Items[0]
	c.Operator = client.ObjectKeyFromObject(&found)
	c.Settings = map[string]string{}
	for _, v := range found.Spec.Template.Spec.Containers[0].Env {
		c.Settings[v.Name] = v.Value
	}
	return nil
}

func (c *Cluster) findNode(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("look for a node: %w", err)
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				c.NodeAddress = a.Address
				return nil
			}
		}
	}
	return errors.New("no node of the cluster has an internal address")
}

// AtNode is the address of a node port.
func (c *Cluster) AtNode(port int32) string {
	return net.JoinHostPort(c.NodeAddress, strconv.Itoa(int(port)))
}

// Setting returns a variable of the operator's environment.
func (c *Cluster) Setting(name string) (string, error) {
	value, set := c.Settings[name]
	if !set {
		return "", fmt.Errorf("the operator's Deployment does not set %s", name)
	}
	return value, nil
}

// Number returns a variable that is a number.
func (c *Cluster) Number(name string) (int32, error) {
	text, err := c.Setting(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err
}

// OperatorPods returns the operator's pods that are not on their way out.
func (c *Cluster) OperatorPods(ctx context.Context) ([]corev1.Pod, error) {
	return c.Pods(ctx, c.Operator.Namespace, OperatorLabels)
}

// Leader returns the operator's pod that works: the one that holds the lease.
func (c *Cluster) Leader(ctx context.Context) (*corev1.Pod, error) {
	pods, err := c.OperatorPods(ctx)
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Operator.Namespace, Name: config.DefaultLeaseName}, lease); err != nil {
		return nil, err
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	for i := range pods {
		// client-go appends "_" and a UUID to the host name.
		if strings.HasPrefix(holder, pods[i].Name+"_") {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("the lease is held by %q, which is none of the operator's %d pods", holder, len(pods))
}

// OperatorLog returns what the operator's pods have logged.
func (c *Cluster) OperatorLog(ctx context.Context) (string, error) {
	pods, err := c.OperatorPods(ctx)
	if err != nil {
		return "", err
	}
	var log strings.Builder
	for _, pod := range pods {
		if !started(&pod) {
			continue
		}
		text, err := c.Plain.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return "", fmt.Errorf("log of %s: %w", pod.Name, err)
		}
		log.Write(text)
	}
	return log.String(), nil
}

// started reports whether a container of a pod has run, and so may have logged.
func started(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil || c.LastTerminationState.Terminated != nil
	})
}

// Pods returns the pods of a namespace that are not on their way out, those with labels only
// unless these are nil.
func (c *Cluster) Pods(ctx context.Context, namespace string, labels client.MatchingLabels) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), labels); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// PodReady reports whether all containers of a pod are ready.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// NamespaceGone is an error while the namespace exists.
func (c *Cluster) NamespaceGone(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("namespace %s exists, phase %s, conditions %v", name, namespace.Status.Phase, namespace.Status.Conditions)
	}
}

// NodeNetwork returns a function that runs another one in the network namespace of the node. A socket stays where it was made.
func (c *Cluster) NodeNetwork(ctx context.Context) (run func(do func()) error) {
	GinkgoHelper()
	path := "/var/run/netns/" + c.NetworkNamespace(ctx)
	return func(do func()) error {
		node, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = node.Close() }()
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			// The thread is never used again: it ends with this goroutine.
			runtime.LockOSThread()
			if err = unix.Setns(int(node.Fd()), unix.CLONE_NEWNET); err == nil {
				do()
			}
		}()
		<-done
		return err
	}
}

// DialNode returns a function that connects as a program of the node does: no network policy applies to it.
func (c *Cluster) DialNode(ctx context.Context) func(ctx context.Context, network, address string) (net.Conn, error) {
	GinkgoHelper()
	run := c.NodeNetwork(ctx)
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		entered := run(func() { conn, err = (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, network, address) })
		return conn, errors.Join(entered, err)
	}
}

// NetworkNamespace returns the name of the network namespace of this machine that has the node's address.
func (c *Cluster) NetworkNamespace(ctx context.Context) string {
	GinkgoHelper()
	all, err := exec.CommandContext(ctx, "ip", "netns", "list").Output()
	Expect(err).NotTo(HaveOccurred(), "list network namespaces: is this root, and iproute2 installed?")
	for line := range strings.Lines(string(all)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		found, err := exec.CommandContext(ctx, "ip", "-n", name, "-oneline", "address", "show", "to", c.NodeAddress).Output()
		if err == nil && len(found) > 0 {
			return name
		}
	}
	Fail(fmt.Sprintf("no network namespace has the node's address %s: a cluster of profile node on this machine is needed", c.NodeAddress))
	return ""
}
