// Package warm keeps prepared instances of Challenges: spec.warm. It only creates and deletes ChallengeInstances in the operator's
// namespace. Package challengeinstance builds them as any other, and lets instances of players take them over.
//
//	decide.go      pure: how many are kept of which Challenge, and which are deleted
//	asked.go       pure: what the registrations of platforms ask for
//	controller.go  the observations, the writes, and the condition Warm of a Challenge
//
// # What holds
//
// A prepared instance that an instance has claimed belongs to its player: this package never deletes it. Its deletions carry the
// version in which no claim was seen, so a claim that comes first makes them fail, and a deletion that comes first makes the claim
// fail.
//
// All rounds run in one worker, because all pools share one limit. A round decides from the instances that exist and keeps
// nothing in memory. If the operator is killed after some of the writes of a round, the next round counts the instances that
// exist and makes the rest.
//
// Players come first: while pods of players find no node, prepared instances are deleted and none is created, and none is created
// while the objects of a player's instance are being written. See docs/adr/0048-an-instance-takes-over-a-prepared-one.md.
package warm
