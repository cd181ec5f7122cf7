// Package manifests converts a Challenge into the objects of an instance. It validates the Challenge, normalises it into a
// Snapshot, and plans every object. It has no client, no clock and no randomness: secrets are derived from the seed of the
// instance (Inputs).
package manifests
