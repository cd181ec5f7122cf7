package instances

import "fmt"

// Kind is what a caller can do about an Error.
type Kind int

// The kinds of errors.
const (
	// NotFound: there is no such challenge or instance.
	NotFound Kind = iota
	// Exists: there is one already.
	Exists
	// Invalid: the request is wrong in every state.
	Invalid
	// Refused: the request is right, and the state does not allow it.
	Refused
	// Exhausted: a limit or budget is reached.
	Exhausted
)

// Error is one that the platform gets as it is. It contains no flag.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

// Fail returns an Error.
func Fail(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
