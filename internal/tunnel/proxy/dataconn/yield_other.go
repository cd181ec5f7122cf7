//go:build !linux

package dataconn

import "runtime"

// yield gives the CPU to other goroutines.
func yield() { runtime.Gosched() }
