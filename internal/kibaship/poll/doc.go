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
//	waits.go   the logins that a provider asks to leave alone
//	metrics.go the number of questions
//
// # What holds
//
// A repository has at most one question under way, and none sooner than spacing after the one before. A controller that asks
// for an answer gets the last one immediately, and an event when it changes. No lock is held while a server is asked.
//
// # After a kill
//
// Nothing is stored. Each repository is asked once after a start, with the first reconciliation of its Application. Which commit
// a Deployment was given is noted there, so an answer that is the same as before starts nothing.
package poll
