// Package optional is for kinds of APIs that a cluster may lack. It spares the API server
// requests that must fail, and a worker the wait for a watch that has nothing to connect
// to: a client that is asked for a kind that it does not know looks up what the API server
// serves, each time, and one that reads from a cache does so under the lock of all caches.
//
// A Presence knows which kinds are missing and keeps clients from asking for them; a
// Follower keeps that true while APIs are installed and removed, and wakes what
// waited.
package optional

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Presence knows which kinds cannot be used at the moment. The zero value knows of none.
type Presence struct {
	mu      sync.RWMutex
	missing map[schema.GroupVersionKind]bool
}

// Set notes whether a kind is missing.
func (p *Presence) Set(gvk schema.GroupVersionKind, missing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing == nil {
		p.missing = map[schema.GroupVersionKind]bool{}
	}
	p.missing[gvk] = missing
}

// Check returns the error of a cluster that lacks the kind, which meta.IsNoMatchError
// knows, and nil if the kind can be used.
func (p *Presence) Check(gvk schema.GroupVersionKind) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.missing[gvk] {
		return nil
	}
	return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// Clients makes clients as next does, whose reads and writes of a kind that is missing
// fail at once, without a request.
func (p *Presence) Clients(next client.NewClientFunc) client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := next(config, options)
		if err != nil {
			return nil, err
		}
		return guarded{Client: c, kinds: guard{p, c.GroupVersionKindFor}}, nil
	}
}

// Reader is a reader whose reads of a kind that is missing fail at once, without a
// request. kindOf is client.Client's GroupVersionKindFor.
func (p *Presence) Reader(next client.Reader, kindOf func(runtime.Object) (schema.GroupVersionKind, error)) client.Reader {
	return guardedReader{Reader: next, kinds: guard{p, kindOf}}
}

// guard checks objects.
type guard struct {
	presence *Presence
	kindOf   func(runtime.Object) (schema.GroupVersionKind, error)
}

func (g guard) check(obj runtime.Object) error {
	gvk, err := g.kindOf(obj)
	if err != nil {
		return err
	}
	return g.presence.Check(gvk)
}

func (g guard) checkList(list client.ObjectList) error {
	gvk, err := g.kindOf(list)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return g.presence.Check(gvk)
}

// guarded guards what names the kind by an object.
type guarded struct {
	client.Client
	kinds guard
}

func (c guarded) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.kinds.check(obj); err != nil {
		return err
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

func (c guarded) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.kinds.checkList(list); err != nil {
		return err
	}
	return c.Client.List(ctx, list, opts...)
}

func (c guarded) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := c.kinds.check(obj); err != nil {
		return err
	}
	return c.Client.Create(ctx, obj, opts...)
}

func (c guarded) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := c.kinds.check(obj); err != nil {
		return err
	}
	return c.Client.Update(ctx, obj, opts...)
}

func (c guarded) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.kinds.check(obj); err != nil {
		return err
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

func (c guarded) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := c.kinds.check(obj); err != nil {
		return err
	}
	return c.Client.Delete(ctx, obj, opts...)
}

func (c guarded) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	if err := c.kinds.check(obj); err != nil {
		return err
	}
	return c.Client.DeleteAllOf(ctx, obj, opts...)
}

type guardedReader struct {
	client.Reader
	kinds guard
}

func (r guardedReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := r.kinds.check(obj); err != nil {
		return err
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

func (r guardedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.kinds.checkList(list); err != nil {
		return err
	}
	return r.Reader.List(ctx, list, opts...)
}
