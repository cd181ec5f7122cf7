package cache

import (
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options bounds what one family keeps in memory.
type Options struct {
	// Selector chooses the objects of every kind that ByObject does not name. Nil: none of
	// them is chosen, since to keep all objects of a kind must be said.
	Selector labels.Selector
	// ByObject says otherwise for a kind. The API server must serve it: a kind of an optional
	// API can only have the Selector.
	ByObject map[client.Object]cache.ByObject
	// Trim drops from an object what the family does not look at. It is called once for each
	// object, which nobody else has seen yet. Nil: all is kept.
	Trim func(client.Object)
}

// Caches makes the caches of one process.
type Caches struct {
	fieldManager string
	turns        chan struct{}
	common       *intern
}

// New returns what makes caches. fieldManager is the operator's name in
// metadata.managedFields: what it has written there is not kept.
func New(fieldManager string) *Caches {
	return &Caches{fieldManager: fieldManager, turns: make(chan struct{}, listsAtOnce), common: newIntern()}
}

// Options returns the options of the cache of a family.
func (c *Caches) Options(of Options) cache.Options {
	selector := of.Selector
	if selector == nil {
		selector = labels.Nothing()
	}
	return cache.Options{
		DefaultLabelSelector: selector,
		DefaultTransform:     c.transform(of.Trim),
		NewInformer:          newInformers(c.turns),
		ByObject:             of.ByObject,
	}
}
