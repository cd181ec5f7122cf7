// Package status decides about one instance and computes its status. It checks the observations, and computes phase,
// conditions, cause and times from the outcome of a reconciliation. It has no client, no clock and no randomness.
package status
