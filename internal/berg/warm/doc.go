// Package warm keeps prepared instances of Challenges: spec.warm. It only creates and deletes ChallengeInstances in the operator's
// namespace. Package challengeinstance builds them as any other, and lets instances of players take them over.
//
//	decide.go      pure: how many are kept of which Challenge, and which are deleted
//	asked.go       pure: what the registrations of platforms ask for
//	controller.go  the observations, the writes, and the condition Warm of a Challenge
package warm
