package dataconn

import "syscall"

// yield gives the CPU to other processes, such as the one that is waited for.
func yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
