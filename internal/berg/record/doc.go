// Package record keeps what is left of instances that have ended, as ChallengeInstanceRecords.
//
// A record is made of what is seen before the namespace of its instance is deleted, and written
// while it is being deleted. Deletions do not wait for the write, and not long for what is read:
//
//	recorder.go    the line of those that end: bounded, with a deadline, and never in the way
//	capture.go   all reads: pods, and the ends of their logs
//	access.go    the right to read logs, in the namespace of the instance alone
//	log.go       pure: the end of a log without flags
//	record.go    pure: what was seen → a record that fits
//	sweep.go     pure: which records are over, and when the next one is
//	sweeper.go   deletes them
//
// The name of a record is the UID of its instance, so that one that is written twice, by an
// operator that was killed in between, is there once.
package record
