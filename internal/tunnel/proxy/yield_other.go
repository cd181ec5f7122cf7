//go:build !linux

package proxy

import "runtime"

// yield lets others have the processor.
func yield() { runtime.Gosched() }
