package cache

import (
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options limit what one family keeps in memory.
type Options struct {
	// Selector selects the objects of every kind that ByObject does not name. Nil selects none
	// of them, so that caching all objects of a kind is explicit.
	Selector labels.Selector
	// ByObject replaces the Selector for a kind. The API server must serve the kind: kinds of
	// an optional API can only have the Selector.
	ByObject map[client.Object]cache.ByObject
	// Trim drops from an object what the family does not read. It is called once for each
	// object, before any other reader has it. Nil: everything is kept.
	Trim func(client.Object)
	// Domains begin the keys of the family's own labels and annotations. Of an object in a namespace, and of a
	// namespace, that is larger than MaxContent after Trim only these are kept, its identity and its status: see
	// Reduced. None: objects of any size are kept.
	Domains []string
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
		selector = labels.Nothing()
	}
	return cache.Options{
		DefaultLabelSelector: selector,
		DefaultTransform:     c.transform(options.Trim, options.Domains),
		NewInformer:          newInformers(c.slots),
		ByObject:             options.ByObject,
	}
}
