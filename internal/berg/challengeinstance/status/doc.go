// Package status decides what an instance may do and what its status says. It checks what
// was observed, and computes phase, conditions, cause and times from the outcome of a
// reconciliation. It has no client, no clock and no randomness.
package status
