package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// exhaust processes: forks without end, in every process; says so once when a fork is refused.
// exhaust memory: takes memory until it is killed, again and again; says so each time.
// exhaust disk FILE BYTES: writes so many zeros.
// exhaust processor: computes without end, on every processor.
func exhaust(ctx context.Context, streams Streams, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "processes":
		fmt.Fprintln(streams.Out, "refused:", forkUntilRefused())
		<-ctx.Done()
		return nil
	case len(args) == 1 && args[0] == "memory":
		for ctx.Err() == nil {
			taker := exec.CommandContext(ctx, "/proc/self/exe", "exhaust", "memory", "once")
			fmt.Fprintln(streams.Out, taker.Run())
		}
		return nil
	case len(args) == 2 && args[0] == "memory" && args[1] == "once":
		return takeMemory(ctx)
	case len(args) == 1 && args[0] == "processor":
		fmt.Fprintln(streams.Out, "computing")
		for range runtime.NumCPU() {
			go func() {
				for ctx.Err() == nil {
				}
			}()
		}
		<-ctx.Done()
		return nil
	case len(args) == 3 && args[0] == "disk":
		size, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return fmt.Errorf("BYTES: %w", err)
		}
		return writeZeros(streams.Out, args[1], size)
	default:
		return errors.New("want processes, memory, processor, or disk FILE BYTES")
	}
}

// forkUntilRefused returns why the system refused a fork. Its children never return: they fork on,
// and when they are refused they try again. A child is a copy of one thread of this program, without
// the others that its runtime needs, so it may do nothing but call the system.
//
//go:norace
func forkUntilRefused() syscall.Errno {
	for {
		child, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
		if errno != 0 {
			return errno
		}
		if child == 0 {
			for {
				_, _, _ = syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
			}
		}
	}
}

func takeMemory(ctx context.Context) error {
	const page = 4096
	var taken [][]byte
	for ctx.Err() == nil {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += page {
			block[i] = 1 // untouched memory is not allocated
		}
		taken = append(taken, block)
	}
	return fmt.Errorf("%d MiB were not too much", len(taken))
}

func writeZeros(out io.Writer, name string, size int64) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	zeros := make([]byte, 1<<20)
	for written := int64(0); written < size; {
		n, err := file.Write(zeros[:min(size-written, int64(len(zeros)))])
		written += int64(n)
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", written, err)
		}
	}
	fmt.Fprintln(out, size, "bytes written")
	return file.Close()
}
