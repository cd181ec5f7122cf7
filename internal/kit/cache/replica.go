package cache

import ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

// OfReplica is a cache next to the one of a family, to be added to a manager. Every replica fills it, before it competes for the
// lease. Without this the manager takes a cache that selects objects for a part of the leader: a controller that a standby runs
// waits for it in vain, and ends the process after two minutes.
type OfReplica struct{ ctrlcache.Cache }

// GetCache is how a manager recognises a cache.
func (c OfReplica) GetCache() ctrlcache.Cache { return c.Cache }
