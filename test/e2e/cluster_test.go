package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
)

// cluster is a cluster with a deployed operator.
type cluster struct {
	client.WithWatch

	rest *rest.Config
	// plain is for what is no resource: logs, exec and port-forward.
	plain kubernetes.Interface

	// operator names the operator's Deployment.
	operator client.ObjectKey
	// settings is the operator's environment as deployed.
	settings map[string]string
	// nodeAddress is the address of a node, for node ports.
	nodeAddress string
}

// operatorLabels select the operator's Deployment and its pods.
var operatorLabels = client.MatchingLabels{
	"app.kubernetes.io/name": "berg-operator",
	"control-plane":          "controller-manager",
}

// connect finds the cluster that KUBECONFIG names, and the operator in it.
func connect(ctx context.Context) (*cluster, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	// A client-side limit would show up as slowness of the operator.
	config.QPS = -1
	scheme, err := operator.NewScheme(families.All()...)
	if err != nil {
		return nil, err
	}
	for _, add := range []func() error{
		func() error { return clientgoscheme.AddToScheme(scheme) },
		func() error { return admissionv1.AddToScheme(scheme) },
	} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	c := &cluster{rest: config}
	if c.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("reach the cluster of KUBECONFIG: %w", err)
	}
	if c.plain, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := c.findOperator(ctx); err != nil {
		return nil, err
	}
	return c, c.findNode(ctx)
}

func (c *cluster) findOperator(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, operatorLabels); err != nil {
		return fmt.Errorf("look for the operator: %w", err)
	}
	if n := len(deployments.Items); n != 1 {
		return fmt.Errorf("found %d Deployments with the labels %v, want 1: run `make deploy` first", n, operatorLabels)
	}
	found := deployments.Items[0]
	c.operator = client.ObjectKeyFromObject(&found)
	c.settings = map[string]string{}
	for _, v := range found.Spec.Template.Spec.Containers[0].Env {
		c.settings[v.Name] = v.Value
	}
	return nil
}

func (c *cluster) findNode(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("look for a node: %w", err)
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				c.nodeAddress = a.Address
				return nil
			}
		}
	}
	return errors.New("no node of the cluster has an internal address")
}

// atNode is the address of a node port.
func (c *cluster) atNode(port int32) string {
	return net.JoinHostPort(c.nodeAddress, strconv.Itoa(int(port)))
}

// setting returns a variable of the operator's environment.
func (c *cluster) setting(name string) (string, error) {
	value, set := c.settings[name]
	if !set {
		return "", fmt.Errorf("the operator's Deployment does not set %s", name)
	}
	return value, nil
}

// number returns a variable that is a number.
func (c *cluster) number(name string) (int32, error) {
	text, err := c.setting(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err
}

// operatorPods returns the operator's pods that are not on their way out.
func (c *cluster) operatorPods(ctx context.Context) ([]corev1.Pod, error) {
	return c.pods(ctx, c.operator.Namespace, operatorLabels)
}

// leader returns the operator's pod that works: the one that holds the lease.
func (c *cluster) leader(ctx context.Context) (*corev1.Pod, error) {
	pods, err := c.operatorPods(ctx)
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.operator.Namespace, Name: operator.LeaseName}, lease); err != nil {
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

// operatorLog returns what the operator's pods have logged.
func (c *cluster) operatorLog(ctx context.Context) (string, error) {
	pods, err := c.operatorPods(ctx)
	if err != nil {
		return "", err
	}
	var log strings.Builder
	for _, pod := range pods {
		text, err := c.plain.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return "", fmt.Errorf("log of %s: %w", pod.Name, err)
		}
		log.Write(text)
	}
	return log.String(), nil
}

func (c *cluster) pods(ctx context.Context, namespace string, labels client.MatchingLabels) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), labels); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// podReady reports whether all containers of a pod are ready.
func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
