//go:build race

package proxy

// raceDetector: it needs memory of its own.
const raceDetector = true
