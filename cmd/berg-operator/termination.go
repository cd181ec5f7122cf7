package main

import (
	"os"
	"strings"
)

// terminationLogSize is how much of the file the kubelet reports, in bytes. It reports only the end
// of a longer file, and would drop the first and most useful lines. Source:
// MaxContainerTerminationMessageLength of the kubelet.
const terminationLogSize = 4096

// writeTerminationLog writes the reason to the file that the kubelet reads. Outside
// a container the file does not exist, and is not created. It never fails: the reason of the end must not be hidden by another
// one.
func writeTerminationLog(path string, reason error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return // the reason is on standard error too
	}
	defer func() { _ = file.Close() }()
	_, _ = file.WriteString(shorten(reason.Error()+"\n", terminationLogSize))
}

// shorten cuts a text after the last line that fits, and appends a note.
func shorten(text string, size int) string {
	const rest = "... (the log has the rest)\n"
	if len(text) <= size {
		return text
	}
	text = text[:size-len(rest)]
	return text[:strings.LastIndexByte(text, '\n')+1] + rest
}
