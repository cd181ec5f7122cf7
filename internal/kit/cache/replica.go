package cache

import (
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// OfReplica makes a cache next to the cache of a family, and adds it to a manager. It reads as the manager does, and has
// its scheme unless the options name another. Every replica fills it, before it competes for the lease.
func OfReplica(mgr ctrl.Manager, options ctrlcache.Options) (ctrlcache.Cache, error) {
	options.HTTPClient, options.Mapper = mgr.GetHTTPClient(), mgr.GetRESTMapper()
	if options.Scheme == nil {
		options.Scheme = mgr.GetScheme()
	}
	own, err := ctrlcache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, err
	}
	return own, mgr.Add(ofReplica{own})
}

// ofReplica makes a manager recognise its cache as one that every replica starts. A manager treats a cache with other
// selectors as a part of the leader: a controller of a standby would then wait for it in vain, and end the process after two
// minutes.
type ofReplica struct{ ctrlcache.Cache }

// GetCache is how a manager recognises a cache.
func (c ofReplica) GetCache() ctrlcache.Cache { return c.Cache }
