// Package pairobjects names the objects of a pair of proxies, and recognises the objects that a pair owns. The network and
// the pair both need that.
package pairobjects

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Labels are the labels of every object that belongs to a pair.
var Labels = ownership.Labels{
	Domain: tunnelv1.GroupVersion.Group,
	Owner:  "tunnel-proxy",
	Found:  map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy},
}

// OwnerFor returns the owner of all objects of a pair.
func OwnerFor(p *tunnelv1.ContainerNetworkTunnelProxy) ownership.Owner {
	return Labels.For(p.UID, nil)
}

// The parts of a pair, as the names of its objects have them.
const (
	PartClient  = "client"
	PartServer  = "server"
	PartControl = "control"
	PartPull    = "pull"
)

// Name returns a name that no other pair ever has, because a hash of the UID is in it. It is short enough for a
// Service.
func Name(pair, part string, uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	end := "-" + part + "-" + hex.EncodeToString(sum[:5])
	return naming.Within(pair, naming.MaxLabelValue-len(end)) + end
}

// Namespaces are the namespaces of networks, by the name of the network.
type Namespaces map[string]string

// ClientProxies returns the pods that are client proxies of the pairs: each has the name and the UID of a pair, in the
// namespace of its network, if that network exists. The label of client proxies alone shows nothing, because every user who
// creates pods can set it, and so can an owner reference; but in the namespace of the network only one pod can have the
// name of the pair's pod.
func ClientProxies(pods []corev1.Pod, pairs []tunnelv1.ContainerNetworkTunnelProxy, namespaces Namespaces) []*corev1.Pod {
	byName := map[string]*tunnelv1.ContainerNetworkTunnelProxy{}
	for i := range pairs {
		byName[Name(pairs[i].Name, PartClient, pairs[i].UID)] = &pairs[i]
	}
	var owned []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		pair := byName[pod.Name]
		if pair == nil || !OwnerFor(pair).Owns(pod) {
			continue
		}
		if namespace, exists := namespaces[pair.Spec.ContainerNetworkName]; exists && namespace != pod.Namespace {
			continue
		}
		owned = append(owned, pod)
	}
	return owned
}

// Ports returns the ports at which a client proxy listens for its server proxy. Only the first port of each name counts: a
// user who creates pods in a network could take the name of a pair's pod before the pair does, and close all ports to the others.
func Ports(pod *corev1.Pod) (control, data corev1.ContainerPort) {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			switch {
			case port.Name == "control" && control.Name == "":
				control = port
			case port.Name == "data" && data.Name == "":
				data = port
			}
		}
	}
	return control, data
}
