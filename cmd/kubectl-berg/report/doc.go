// Package report makes a support bundle, with which another person can find out why an event does not work, without
// flags and without secrets. It shows of each object only the fields that a list names: a flag, an environment variable, a
// command, the content of a Secret or of a file cannot get in by a mistake. Redactor then removes flags and secrets that
// other programs may have quoted. It is pure.
//
//	report.go   Bundle and its limits
//	convert.go  New: the parts of a survey that a report may have
//	fields.go   the fields of each kind
//	redact.go   Redactor
//	write.go    the files, and the archive
//
// # What holds
//
// Both measures are necessary. The lists of fields keep out all known secrets, but a message, an event or a log may quote
// anything. Redactor knows flags by the Challenges and instances that the user may read, and recognises others by their format
// alone. No text is cut before it is redacted, except a log, whose first line is dropped if it is not complete. A message that
// Kubernetes has cut may end within a flag: see cutFrom.
//
// Every limit leaves out whole objects, and Bundle.Missing says how many.
package report
