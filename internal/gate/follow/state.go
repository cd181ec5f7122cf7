package follow

import (
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/usage"
)

// State has the objects that the gate knows. It is safe for concurrent use.
type State struct {
	started    time.Time
	table      *routing.Table
	controller gatewayv1.GatewayController
	ports      []int32
	// addresses are the Services that lead to the gate, each with the addresses that Gateways get from it.
	addresses []types.NamespacedName
	known     [][]gatewayv1.GatewayStatusAddress
	// Preferred is the namespace whose Gateways go before all others.
	Preferred string
	// chosen is the address of Gateways whose status does not have it yet.
	chosen map[types.NamespacedName]int
	// Changed is called for each object whose status may have changed. It must not call State.
	Changed func(routing.Key)
	// Certificates is called with the Secrets that Gateways name. It must not call State.
	Certificates func([]types.NamespacedName)
	// Usage has what players do with each route.
	Usage *usage.Recorder

	mu           sync.Mutex
	classes      map[string]bool
	namespaces   map[string]labels.Set
	services     map[types.NamespacedName][]routing.ServicePort
	grants       map[types.NamespacedName]*gatewayv1.ReferenceGrant
	certificates map[types.NamespacedName]certificate
	secrets      []types.NamespacedName // that are read for certificates
	gateways     map[types.NamespacedName]*gatewayv1.Gateway
	compiled     map[types.NamespacedName]*routing.Gateway
	httpRoutes   map[types.NamespacedName]*gatewayv1.HTTPRoute
	tlsRoutes    map[types.NamespacedName]*gatewayv1.TLSRoute
	routes       map[routing.Key]*routing.Route
	byService    index[types.NamespacedName]
	byNamespace  index[string]
	attached     map[listenerKey]int32
}

type certificate struct {
	value *tls.Certificate
	err   error
}

type listenerKey struct {
	gateway types.NamespacedName
	name    string
}

// index has the routes that refer to something.
type index[K comparable] map[K]map[routing.Key]bool

func (i index[K]) add(key K, route routing.Key) {
	if i[key] == nil {
		i[key] = map[routing.Key]bool{}
	}
	i[key][route] = true
}

func (i index[K]) remove(key K, route routing.Key) {
	if delete(i[key], route); len(i[key]) == 0 {
		delete(i, key)
	}
}

// The kinds of keys that name no route.
const (
	ClassKind   = "GatewayClass"
	GatewayKind = "Gateway"
)

var errNoCertificate = errors.New("there is no such Secret, or the gate may not read it")

// NewState returns a State that changes a table.
func NewState(table *routing.Table, controller gatewayv1.GatewayController, ports []int32, addresses []types.NamespacedName) *State {
	return &State{
		started: time.Now(), Usage: usage.NewRecorder(), table: table, controller: controller, ports: ports, addresses: addresses, known: make([][]gatewayv1.GatewayStatusAddress, max(1, len(addresses))), chosen: map[types.NamespacedName]int{}, Changed: func(routing.Key) {}, Certificates: func([]types.NamespacedName) {},
		classes: map[string]bool{}, namespaces: map[string]labels.Set{}, services: map[types.NamespacedName][]routing.ServicePort{},
		grants: map[types.NamespacedName]*gatewayv1.ReferenceGrant{}, certificates: map[types.NamespacedName]certificate{},
		gateways: map[types.NamespacedName]*gatewayv1.Gateway{}, compiled: map[types.NamespacedName]*routing.Gateway{},
		httpRoutes: map[types.NamespacedName]*gatewayv1.HTTPRoute{}, tlsRoutes: map[types.NamespacedName]*gatewayv1.TLSRoute{},
		routes: map[routing.Key]*routing.Route{}, byService: index[types.NamespacedName]{}, byNamespace: index[string]{}, attached: map[listenerKey]int32{},
	}
}
