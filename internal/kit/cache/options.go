package cache

import (
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options limit the memory of one family's cache.
type Options struct {
	// Selector selects the objects of every kind that ByObject does not name. Nil selects none
	// of them, so that caching all objects of a kind is explicit.
	Selector labels.Selector
	// ByObject replaces the Selector for a kind. The API server must serve the kind: kinds of
	// an optional API can only have the Selector.
	ByObject map[client.Object]cache.ByObject
	// Trim drops fields of an object that the family does not read. It is called once for each object,
	// before any other reader has it. Nil: everything is kept.
	Trim func(client.Object)
	// Domains are the prefixes of the family's own labels and annotations. If an object in a namespace, or a
	// namespace, is larger than MaxContent after Trim, only these labels and annotations, its identity and its
	// status are kept: see Reduced. None: objects of any size are kept.
	Domains []string
	// Finalizers are the family's own. The cache keeps them of a custom resource with many finalizers, and a few others: see FinalizersReduced.
	Finalizers []string
}

// Caches creates the caches of one process.
type Caches struct {
	fieldManager string
	slots        chan struct{}
	common       *intern
}

// New returns Caches. fieldManager is the operator's name in
// metadata.managedFields: the details of its own entry are not kept.
func New(fieldManager string) *Caches {
	return &Caches{fieldManager: fieldManager, slots: make(chan struct{}, maxLists), common: newIntern()}
}

// Options returns the options of the cache of a family.
func (c *Caches) Options(options Options) cache.Options {
	selector := options.Selector
	if selector == nil {
		// A kind that a family forgot to name has no objects, which a test of the family shows. All objects of the cluster would
		// only show in the memory.
		selector = labels.Nothing()
	}
	return cache.Options{
		DefaultLabelSelector: selector,
		DefaultTransform:     c.transform(options),
		NewInformer:          newInformers(c.slots),
		ByObject:             options.ByObject,
	}
}

// OfReplica makes a cache next to the cache of a family, and adds it to a manager. It reads as the manager does, and has
// its scheme unless the options name another. Every replica fills it, before it competes for the lease.
func OfReplica(mgr ctrl.Manager, options cache.Options) (cache.Cache, error) {
	options.HTTPClient, options.Mapper = mgr.GetHTTPClient(), mgr.GetRESTMapper()
	if options.Scheme == nil {
		options.Scheme = mgr.GetScheme()
	}
	own, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, err
	}
	return own, mgr.Add(ofReplica{own})
}

// ofReplica makes a manager recognise its cache as one that every replica starts. A manager treats a cache with other
// selectors as a part of the leader: a controller of a standby would then wait for it in vain, and end the process after two
// minutes.
type ofReplica struct{ cache.Cache }

// GetCache is how a manager recognises a cache.
func (c ofReplica) GetCache() cache.Cache { return c.Cache }
