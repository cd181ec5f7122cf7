// Package jobs runs operations that take too long for a reconciliation: image builds and calls to proxies.
//
// A job belongs to the UID of a custom resource and has a kind. A reconciliation calls Do, which starts the job or
// returns its result. When a job ends, the custom resource is reconciled again. Attempts, the delays between them and
// results are in memory only: after a restart of the operator every job runs again, so every job must be repeatable.
//
// A job that has a slot is completed, also if its custom resource is deleted: Withdraw cancels only jobs that wait. So a deletion first
// withdraws, waits until Busy is false, and then removes what the jobs have made.
package jobs
