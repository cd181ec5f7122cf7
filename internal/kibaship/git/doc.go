// Package git asks a git server what a repository has: branches, tags, and the message of a commit. It clones nothing, and starts no
// program.
//
// It speaks version 2 of git's protocol over HTTP, in which a client names the branches and tags that it wants to know. Each question
// is one request. With older versions, which libraries for git speak, the server lists every branch, tag and pull request:
// megabytes for large repositories, in every question.
//
//	packet.go   lines of the protocol
//	client.go   requests, and what errors say
//	refs.go     branches and tags
//	limit.go    for how long a server asks to be left alone
//	message.go  the message of a commit
package git
