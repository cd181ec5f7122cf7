package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

const (
	nodePortSuffix = "-node-port"
	headlessSuffix = "-headless"
)

// services returns the Services of one container: the internal one with all
// ports, the node port one with the public ports, the headless one if wanted.
// A Service needs a port, so a container without ports gets none but, if
// wanted, the headless one.
func services(in Inputs, c bergv1.Container) []*corev1.Service {
	var all, public []corev1.ServicePort
	for _, p := range c.Ports {
		sp := corev1.ServicePort{
			Name:       servicePortName(c, p),
			Port:       p.Port,
			Protocol:   protocol(p),
			TargetPort: intstr.FromInt32(p.Port),
		}
		all = append(all, sp)
		if portType(p) == bergv1.PublicPort {
			sp.NodePort = recordedNodePort(in, c, p)
			public = append(public, sp)
		}
	}

	var out []*corev1.Service
	add := func(name string, spec corev1.ServiceSpec) {
		spec.Selector = in.podLabels(c.Hostname)
		out = append(out, &corev1.Service{ObjectMeta: in.meta(name, "challenge-service"), Spec: spec})
	}
	if len(all) > 0 {
		add(c.Hostname, corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: all})
	}
	if len(public) > 0 {
		add(c.Hostname+nodePortSuffix, corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: public})
	}
	if in.Config.HeadlessService {
		add(c.Hostname+headlessSuffix, corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Ports: all})
	}
	return out
}

// recordedNodePort is the node port that players were told, 0 if none.
func recordedNodePort(in Inputs, c bergv1.Container, p bergv1.Port) int32 {
	for _, e := range in.Recorded {
		if tells(e, c, p) {
			return e.Port
		}
	}
	return 0
}

const (
	// releaseTime is how long the API server may take to release the node ports of
	// a Service that is gone: it does so after it has told everybody.
	releaseTime  = 2 * time.Second
	releasePause = 100 * time.Millisecond
)

// applyService writes a Service. One that has to be created again asks for the node ports
// that it had. Where somebody else has taken one meanwhile, the API server allots another.
func applyService(ctx context.Context, w apply.Writer, owner ownership.Owner, object client.Object) (client.Object, error) {
	desired := object.(*corev1.Service)
	live, err := apply.Apply(ctx, w, owner, desired)
	if len(refusedNodePorts(desired, err)) > 0 {
		_ = wait.PollUntilContextTimeout(ctx, releasePause, releaseTime, false, func(context.Context) (bool, error) {
			// Its own context would cut off the last attempt.
			live, err = apply.Apply(ctx, w, owner, desired)
			return len(refusedNodePorts(desired, err)) == 0, nil
		})
	}
	for refused := refusedNodePorts(desired, err); len(refused) > 0; refused = refusedNodePorts(desired, err) {
		for _, i := range refused {
			desired.Spec.Ports[i].NodePort = 0
		}
		live, err = apply.Apply(ctx, w, owner, desired)
	}
	return live, err
}

// asServices returns objects as the Services that they are.
func asServices(objects []client.Object) []*corev1.Service {
	out := make([]*corev1.Service, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.(*corev1.Service))
	}
	return out
}

// refusedNodePorts returns the indexes of the ports whose node port the API
// server refused. Where TCP and UDP have one number they share the node port,
// and the refusal names the first of them.
func refusedNodePorts(s *corev1.Service, err error) []int {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	numbers := sets.New[int32]()
	for i, p := range s.Spec.Ports {
		at := fmt.Sprintf("spec.ports[%d].nodePort", i)
		if slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == at }) {
			numbers.Insert(p.Port)
		}
	}
	var out []int
	for i, p := range s.Spec.Ports {
		if p.NodePort != 0 && numbers.Has(p.Port) {
			out = append(out, i)
		}
	}
	return out
}

// servicePortName is port-<number>. Names must be unique in a Service, so the
// UDP port of a number that also serves TCP says so.
func servicePortName(c bergv1.Container, p bergv1.Port) string {
	name := fmt.Sprintf("port-%d", p.Port)
	if protocol(p) != corev1.ProtocolUDP {
		return name
	}
	for _, other := range c.Ports {
		if other.Port == p.Port && protocol(other) == corev1.ProtocolTCP {
			return name + "-udp"
		}
	}
	return name
}

func protocol(p bergv1.Port) corev1.Protocol {
	if strings.EqualFold(string(p.Protocol), "udp") {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

func portType(p bergv1.Port) bergv1.PortType {
	if p.Type == "" {
		return bergv1.InternalPort
	}
	return p.Type
}
