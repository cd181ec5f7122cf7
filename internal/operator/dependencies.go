package operator

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/optional"
)

// dependencyBuilder builds the Dependencies of families. Each has its own cache, clients and scheme,
// over the one connection to the API server and behind the one fence.
type dependencyBuilder struct {
	mgr        *reportingManager
	restConfig *rest.Config
	newClient  client.NewClientFunc
	caches     *cache.Caches
	// dependencies are shared by all families.
	dependencies family.Dependencies
}

// make gives a family a cache of its own, with the HTTP client, the mapper and the life of the manager. So a family that is not
// enabled watches nothing, and the settings of one cache do not concern another.
func (m dependencyBuilder) make(f family.Family) (family.Dependencies, error) {
	scheme, err := NewScheme(f)
	if err != nil {
		return family.Dependencies{}, err
	}
	presence := &optional.Presence{}
	newClient := presence.Clients(m.newClient)
	var options client.Options
	own, err := cluster.New(m.restConfig, func(o *cluster.Options) {
		o.Scheme = scheme
		o.HTTPClient = m.mgr.GetHTTPClient()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return m.mgr.GetRESTMapper(), nil }
		o.Cache = m.caches.Options(f.Cache())
		o.Client = client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true), Unstructured: true}}
		o.NewClient = func(restConfig *rest.Config, all client.Options) (client.Client, error) {
			options = all
			return newClient(restConfig, all)
		}
		o.Logger = m.mgr.GetLogger()
	})
	if err != nil {
		return family.Dependencies{}, err
	}
	// The manager fills this cache, too, before it competes for the lease.
	if err := m.mgr.Add(own); err != nil {
		return family.Dependencies{}, err
	}
	deps := m.dependencies
	// Each client waits for its own writes alone. A worker whose lists must show its writes, and no others, makes one.
	deps.NewClient = func() (client.Client, error) { return newClient(m.restConfig, options) }
	deps.Presence, deps.Direct = presence, own.GetAPIReader()
	mgr := familyManager{Manager: m.mgr, own: own, live: presence.Reader(deps.Direct, own.GetClient().GroupVersionKindFor), events: m.mgr}
	deps.Manager = mgr
	deps.Writer.Client, deps.Writer.Live = mgr.GetClient(), mgr.GetAPIReader()
	return deps, nil
}

// familyManager is the one manager, with the cache, the clients and the scheme of a family.
type familyManager struct {
	ctrl.Manager
	own cluster.Cluster
	// live knows which kinds are missing, as the client does. Requests that bypass it must check their kind by name.
	live   client.Reader
	events *reportingManager
}

func (m familyManager) GetScheme() *runtime.Scheme           { return m.own.GetScheme() }
func (m familyManager) GetCache() ctrlcache.Cache            { return m.own.GetCache() }
func (m familyManager) GetClient() client.Client             { return m.own.GetClient() }
func (m familyManager) GetAPIReader() client.Reader          { return m.live }
func (m familyManager) GetFieldIndexer() client.FieldIndexer { return m.own.GetFieldIndexer() }

func (m familyManager) GetEventRecorder(name string) recorder.EventRecorder {
	return m.events.recorder(m.own.GetScheme(), name)
}
