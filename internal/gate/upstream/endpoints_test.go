package upstream

import (
	"fmt"
	"runtime"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A tenant may write an EndpointSlice with as many addresses and ports as fit into an object of etcd.
func TestAnEndpointSliceTakesItsOwnSize(t *testing.T) {
	const addresses, ports, most = 1000, 5000, 4 << 20
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "a"}}}
	for n := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", n/250, n%250)}})
	}
	for n := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(fmt.Sprint("p", n)), Port: ptr.To(int32(n + 1))})
	}
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	endpoints := NewEndpoints()
	endpoints.Set(slice)
	service := types.NamespacedName{Namespace: "tenant", Name: "a"}
	if got := endpoints.Addresses(service, "p7"); len(got) != addresses || got[0].HostPort[len(got[0].HostPort)-2:] != ":8" {
		t.Errorf("%d addresses", len(got))
	}
	if got := endpoints.Addresses(service, "none"); len(got) != 0 {
		t.Errorf("a port that is not there has %d addresses", len(got))
	}
	if taken := int64(inUse()) - int64(before); taken > most {
		t.Errorf("%d bytes are kept of one EndpointSlice", taken)
	}
	runtime.KeepAlive(endpoints)
}

// Each change counts, whichever ports were asked for before.
func TestAddressesFollowEndpointSlices(t *testing.T) {
	endpoints, service := NewEndpoints(), types.NamespacedName{Namespace: "a", Name: "web"}
	set := func(name, of string, addresses ...string) {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}}}
		slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80)}}
		for _, address := range addresses {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		endpoints.Set(slice)
	}
	expect := func(step string, want int) {
		t.Helper()
		if got := endpoints.Addresses(service, "http"); len(got) != want {
			t.Errorf("%s: %v, want %d", step, got, want)
		}
	}
	expect("nothing", 0)
	set("one", "web", "10.0.0.1", "10.0.0.2")
	expect("one EndpointSlice", 2)
	set("two", "web", "10.0.0.3")
	expect("two", 3)
	set("one", "web", "10.0.0.1")
	expect("an address less", 2)
	set("two", "other", "10.0.0.3")
	expect("one of another Service", 1)
	endpoints.Delete(types.NamespacedName{Namespace: "a", Name: "one"})
	expect("none", 0)
	endpoints.Delete(types.NamespacedName{Namespace: "a", Name: "one"})
	set("one", "web", "10.0.0.4")
	expect("it is back", 1)
}
