package redact

// Mark stands for a flag that was removed.
const Mark = "<flag>"

// minLength is the minimum length in bytes of a flag that is removed: a shorter one occurs in ordinary words, and its
// removal would make every message unreadable.
const minLength = 4

// TooShort reports whether a flag cannot be distinguished from ordinary words, and is not removed. Quotation marks and
// backslashes do not count.
func TooShort(flag string) bool { return len(fold(flag)) < minLength }

// Text removes a flag from a foreign text: an admission webhook may repeat the whole object that it rejects. A flag that
// is too short to be distinguished from ordinary words stays.
func Text(text, flag string) string { return NewSet(flag).Remove(text) }

// NewRedactor returns a function that removes a flag from texts.
func NewRedactor(flag string) func(string) string { return NewSet(flag).Remove }

// Error returns an error of the same kind whose text does not name the flag. errors.Is and errors.As still find the original
// error: its text must not be shown.
func Error(err error, flag string) error {
	if err == nil {
		return nil
	}
	return redactedError{err, flag}
}

type redactedError struct {
	error
	flag string
}

func (e redactedError) Error() string { return Text(e.error.Error(), e.flag) }

func (e redactedError) Unwrap() error { return e.error }
