package console

import "slices"

// Level is the severity of a result, or of a finding about an instance.
type Level string

// The levels.
const (
	OK Level = "ok"
	// Waiting: there is no problem, but an instance is not yet in the state that was asked for.
	Waiting Level = "waiting"
	Warning Level = "warning"
	Problem Level = "problem"
	// Unknown: it could not be checked.
	Unknown Level = "unknown"
)

// Order sorts levels: problems first. A level that does not exist sorts before all.
func (l Level) Order() int {
	return slices.Index([]Level{Problem, Warning, Unknown, Waiting, OK}, l)
}
