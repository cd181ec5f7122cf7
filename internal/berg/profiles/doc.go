// Package profiles is the command of the operator's program that puts seccomp profiles onto a node. The pods of
// config/berg/nested run it, on every node.
package profiles
