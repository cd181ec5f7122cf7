package cache

import (
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// OfReplica makes a cache next to the one of a family, and adds it to a manager. It reads as the manager does, and has its
// scheme unless the options name one. Every replica fills it, before it competes for the lease.
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

// ofReplica is what a manager recognises as a cache. It takes one that selects objects for a part of the leader otherwise: a
// controller that a standby runs waits for it in vain, and ends the process after two minutes.
type ofReplica struct{ ctrlcache.Cache }

// GetCache is how a manager recognises a cache.
func (c ofReplica) GetCache() ctrlcache.Cache { return c.Cache }
