package pairobjects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
)

func TestOnlyThePodOfAPairIsItsClientProxy(t *testing.T) {
	pair := tunnelv1.ContainerNetworkTunnelProxy{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "1"},
		Spec:       tunnelv1.ContainerNetworkTunnelProxySpec{ContainerNetworkName: "net"},
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		gone   bool
		want   bool
	}{
		"its pod":                            {func(*corev1.Pod) {}, false, true},
		"its pod, of a network that is gone": {func(p *corev1.Pod) { p.Namespace = "old" }, true, true},
		"a pod with the label alone":         {func(p *corev1.Pod) { p.Name, p.Annotations = "other", nil }, false, false},
		"a pod with a copied owner":          {func(p *corev1.Pod) { p.Name = "other" }, false, false},
		"a pod with a copied owner and name": {func(p *corev1.Pod) { p.Namespace = "tenant" }, false, false},
		"a pod of another pair with the same name": {func(p *corev1.Pod) {
			OwnerFor(&tunnelv1.ContainerNetworkTunnelProxy{ObjectMeta: metav1.ObjectMeta{UID: "2"}}).SetOn(p)
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "net-1", Name: Name(pair.Name, PartClient, pair.UID), Labels: map[string]string{tunnelv1.LabelRole: tunnelv1.RoleClient},
			}}
			OwnerFor(&pair).SetOn(&pod)
			tc.change(&pod)
			namespaces := Namespaces{"net": "net-1", "other": "tenant"}
			if tc.gone {
				delete(namespaces, "net")
			}
			if got := ClientProxies([]corev1.Pod{pod}, []tunnelv1.ContainerNetworkTunnelProxy{pair}, namespaces); (len(got) == 1) != tc.want {
				t.Errorf("%d client proxies, want %t", len(got), tc.want)
			}
		})
	}
}
