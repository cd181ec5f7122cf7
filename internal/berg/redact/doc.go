// Package redact removes flags from texts before they are shown.
//
//	redact.go  one flag in one text
//	set.go     many flags, and the rest of a flag where a text is cut off
//	decode.go  escapes, and runs of base64 and hexadecimal digits
//	client.go  a client whose errors and warnings have no flag
//
// A text is decoded and compared with the flag, as often as encodings may be around each other. A flag that a program
// splits, reverses, compresses or encrypts is not found.
package redact
