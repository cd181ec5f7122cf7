package git

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The special lines of the protocol: https://git-scm.com/docs/protocol-common
const (
	flush     = "0000"
	delimiter = "0001"
)

// maxLine is the maximum length of a line with its length.
const maxLine = 65520

var errProtocol = errors.New("the server does not speak version 2 of git's protocol there")

// errRefused: the server ended the answer, or said no: it may know no filters.
var errRefused = errors.New("the server refuses the question")

// serverError is what a server says instead of an answer.
type serverError struct{ text string }

func (e *serverError) Error() string { return e.text }

// request returns the text of a command with its capabilities and arguments.
func request(command string, arguments ...string) string {
	var b strings.Builder
	write := func(line string) { fmt.Fprintf(&b, "%04x%s\n", len(line)+5, line) }
	write("command=" + command)
	write("agent=berg-operator")
	b.WriteString(delimiter)
	for _, argument := range arguments {
		write(argument)
	}
	b.WriteString(flush)
	return b.String()
}

// readLine returns the next line without its length. The special lines have no content; flushed: it is the last one of an answer.
// A line is never longer than maxLine, so its memory is bounded before it is read.
func readLine(r io.Reader) (line []byte, flushed bool, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, false, err
	}
	length, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err != nil || length > maxLine || length == 3:
		return nil, false, errProtocol
	case length < 4:
		return nil, length == 0, nil
	}
	line = make([]byte, length-4)
	if _, err := io.ReadFull(r, line); err != nil {
		return nil, false, err
	}
	if text, failed := strings.CutPrefix(string(line), "ERR "); failed {
		return nil, false, &serverError{strings.TrimSpace(text)}
	}
	return line, false, nil
}
