// Package command has the commands of the program, one in each file. What they compute is in the neighbouring packages; here are
// their options, their output and their order of requests.
//
//	command.go     New and Execute: all commands, global options, exit codes
//	root.go        what they share: the connection, rows, symbols, the end of a command by Ctrl-C
//	complete.go    completion in shells
//	select.go      selection: the instances that options name
//	many.go        what commands that change many instances share: patches, points in time
//	instance.go    names, lifetimes, and what belongs to an instance
//	connecting.go  the commands with which players connect
//
//	status.go, list.go, why.go, logs.go, record.go               look
//	try.go, connect.go                                           act as a player
//	end.go, extend.go, rollout.go, freeze.go                     change one or many
//	doctor.go, plan.go, report.go                                about the cluster
//	import.go, lint.go                                           about files
//
// # What a change relies on
//
// A command may be interrupted at any time, may lose an answer, and may be repeated. So each change is a patch of exactly one
// object, with its UID: an object of the same name that came later is not found. A change that is computed from the object, such
// as more time, also has the resourceVersion; patchLatest reads the object again after an error, and the change is computed
// again. A repeated command sees in the object itself that it is done: an annotation with the ID of the run, the time that was
// asked for, or the annotation frozen. Nothing is stored on this machine.
//
// # Rollouts
//
// rollout.go requests one instance after another. pacer knows from a watch which ones are healthy again, and holds back the next one.
// An instance is counted before its request is sent, and stays counted after an error that does not exclude a success. No request is
// sent before the watch has seen all instances, and no time passes for the pacer while the connection is lost.
//
// # Logs
//
// logs.go follows each pod with a goroutine of its own, and finds new pods by polling. A stream that breaks is resumed at the time of
// the last line, in whole seconds: lines come again, and source skips them by their times.
package command
