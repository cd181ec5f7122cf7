// Package optional is for kinds of APIs that a cluster may lack. It avoids requests that must fail,
// and workers that wait for a watch without an API: for an unknown kind, a client requests the
// served APIs each time, and a cached client does so under the lock of all caches.
//
// A Presence knows which kinds are missing and fails requests for them. A Follower updates it
// while APIs are installed and removed, and enqueues the resources that waited.
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

// Presence knows which kinds are missing now. In the zero value no kind is missing. It is a hint and no truth. A kind that is
// removed a moment ago still fails in the API server, as apply.KindUnknown says.
type Presence struct {
	mu      sync.RWMutex
	missing map[schema.GroupVersionKind]bool
}

// Set records whether a kind is missing.
func (p *Presence) Set(gvk schema.GroupVersionKind, missing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing == nil {
		p.missing = map[schema.GroupVersionKind]bool{}
	}
	p.missing[gvk] = missing
}

// Check returns the error of a cluster without the kind, for which meta.IsNoMatchError is true,
// and nil if the kind exists.
func (p *Presence) Check(gvk schema.GroupVersionKind) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.missing[gvk] {
		return nil
	}
	return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// Clients wraps next, so that reads and writes of a missing kind fail immediately, without a
// request.
func (p *Presence) Clients(next client.NewClientFunc) client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := next(config, options)
		if err != nil {
			return nil, err
		}
		return guarded{Client: c, kinds: guard{p, c.GroupVersionKindFor}}, nil
	}
}

// Reader wraps next, so that reads of a missing kind fail immediately, without a request.
// kindFor is client.Client's GroupVersionKindFor.
func (p *Presence) Reader(next client.Reader, kindFor func(runtime.Object) (schema.GroupVersionKind, error)) client.Reader {
	return guardedReader{Reader: next, kinds: guard{p, kindFor}}
}

// guard checks the kinds of objects.
type guard struct {
	presence *Presence
	kindFor  func(runtime.Object) (schema.GroupVersionKind, error)
}

func (g guard) check(obj runtime.Object) error {
	gvk, err := g.kindFor(obj)
	if err != nil {
		return err
	}
	return g.presence.Check(gvk)
}

func (g guard) checkList(list client.ObjectList) error {
	gvk, err := g.kindFor(list)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return g.presence.Check(gvk)
}

// guarded guards all methods that have an object as argument.
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
