// Package poll knows the newest commits of repositories that pushes build. It asks git servers after a webhook and at intervals, apart
// from reconciliations, and enqueues an Application when an answer changes.
//
// Each provider has a queue and workers of its own, so that a provider which hangs delays no other one. A provider that is down is asked
// less and less often, for all its Applications together.
//
//	rule.go    pure: which branches and tags an Application builds
//	host.go    the queue of one provider, and its pauses
//	reader.go  asks about one repository, with the login of its Application
//	poller.go  when to ask, and the last answers
package poll
