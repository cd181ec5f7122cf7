package expose

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
	"github.com/bergctf/berg-operator/internal/tunnel/proxypod"
)

// labelManagedBy labels the objects of this program. Other objects of the same name are not changed.
const (
	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "berg-tunnel"
)

// peerGrace is how long the pod waits for this machine, which may sleep. Afterwards it ends, and is made again.
const peerGrace = "15m"

func meta(o Options) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name,
		Labels: map[string]string{labelName: o.Name, labelManagedBy: managedBy},
	}
}

// owned is the metadata of objects that are deleted with a pod.
func owned(o Options, pod *corev1.Pod) metav1.ObjectMeta {
	m := meta(o)
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	return m
}

// clientPod runs the client proxy.
func clientPod(o Options) *corev1.Pod {
	return proxypod.NewClient(meta(o), o.Name, corev1.Container{
		Name:    "client-proxy",
		Image:   o.Image,
		Command: []string{proxypod.Program},
		Args:    []string{"client", "--tls-dir=" + proxypod.TLSFolder, "--peer-grace=" + peerGrace},
	}, proxy.DefaultControlPort, 1)
}

// clientSecret has the certificate of the client proxy. The other ones stay in the memory of this process.
func clientSecret(o Options, pod *corev1.Pod, authority []byte, pair pki.Pair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: owned(o, pod),
		Data: map[string][]byte{
			pki.AuthorityFile: authority, pki.CertificateFile: pair.Certificate, pki.KeyFile: pair.Key,
		},
	}
}

// service gives the pod its name. It is headless: it leads to every port that the client proxy listens at.
func service(o Options, pod *corev1.Pod) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: owned(o, pod),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{labelName: o.Name, labelManagedBy: managedBy},
		},
	}
	for _, p := range o.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "port-" + strconv.Itoa(int(p.InCluster)), Port: p.InCluster, TargetPort: intstr.FromInt32(p.InCluster)})
	}
	return s
}
