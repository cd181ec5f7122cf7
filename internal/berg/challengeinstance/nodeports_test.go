package challengeinstance

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestRefusedNodePorts(t *testing.T) {
	refused := func(at *field.Path) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "game", field.ErrorList{field.Invalid(at, 31001, "provided port is already allocated")})
	}
	ports := field.NewPath("spec", "ports")
	for name, tc := range map[string]struct {
		err  error
		want []int
	}{
		"accepted":            {nil, nil},
		"taken":               {refused(ports.Index(1).Child("nodePort")), []int{1}},
		"about the port":      {refused(ports.Index(1).Child("port")), nil},
		"beyond the ports":    {refused(ports.Index(7).Child("nodePort")), nil},
		"none was asked for":  {refused(ports.Index(2).Child("nodePort")), nil},
		"shared":              {refused(ports.Index(3).Child("nodePort")), []int{3, 4}},
		"shared, of another":  {refused(ports.Index(4).Child("nodePort")), []int{3, 4}},
		"quota":               {apierrors.NewForbidden(schema.GroupResource{}, "game", errors.New("quota")), nil},
		"no answer":           {errors.New("connection refused"), nil},
		"refused, no details": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}}, nil},
	} {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
			{Port: 1, NodePort: 31000},
			{Port: 2, NodePort: 31001},
			{Port: 3},
			{Port: 53, Protocol: "TCP", NodePort: 31002},
			{Port: 53, Protocol: "UDP", NodePort: 31002},
		}}}
		if got := refusedNodePorts(s, tc.err); !cmp.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
