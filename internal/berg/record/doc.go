// Package record keeps records of instances that have ended, as ChallengeInstanceRecords.
//
// A record is composed of observations before the namespace of its instance is deleted, and written
// while it is being deleted. Deletions do not wait for the write, and only a short time for the reads:
//
//	recorder.go  the queue of ending instances: bounded, with a deadline, and never blocking
//	capture.go   all reads: pods, and the ends of their logs
//	access.go    the right to read logs, in the namespace of the instance alone
//	log.go       pure: the end of a log without flags
//	record.go    pure: observations → a record that fits
//	sweep.go     pure: which records have expired, and when the next one does
//	sweeper.go   deletes them
//	metrics.go   the counters
//
// The name of a record is the UID of its instance, so that a record that is written twice, by an
// operator that was killed in between, exists once.
package record
