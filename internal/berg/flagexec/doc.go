// Package flagexec writes the program that a challenge offers as its
// executable flag: a static x86-64 Linux executable that prints one flag and
// nothing else.
//
// # What it is for
//
// A challenge with an executable flag asks its players to reach code execution:
// reading files must not be enough. What keeps the file from being read is the
// cluster (mode 0111, CAP_DAC_OVERRIDE dropped). This package covers the rest:
// a file that leaks through a backup, a debugger or a careless mount must not
// give its flag to strings, grep or an xor brute force, and a recipe worked out
// on one instance must not apply to the next by a fixed offset.
//
// This is obfuscation, not cryptography. The file holds everything needed to
// print the flag, so whoever can read it and is ready to disassemble it gets
// the flag.
//
// # The file
//
//	offset  size
//	0       64         ELF header: ET_EXEC, no section header table at all
//	64      3 × 56     program headers: two PT_LOAD, one PT_GNU_STACK
//	232     …          the two segments, in either order, random bytes between
//	                     data  r--  the encoded flag, one byte every 2 or 3,
//	                                random bytes around and in between
//	                     code  r-x  about 500 bytes
//
// No segment is writable and no segment but the code is executable; the stack
// is declared non-executable. The flag is decoded onto the stack, written to
// standard output, and wiped before the program ends. Each segment lies on
// pages of its own in memory and has p_offset congruent to p_vaddr modulo the
// page size, which Linux and gVisor both require. The file is below 5 KiB.
//
// # The program
//
//	start   make room on the stack, load pointer, length, key
//	decode  per byte: advance the key stream, combine, store
//	write   write(1, …) until everything is out; EINTR is retried, EAGAIN of a
//	        non-blocking pipe waits in poll(2)
//	end     wipe the stack, exit_group(0), or exit_group(1) when standard output
//	        does not take the flag
//
// From the seed and the flag follow the key stream (its steps as well as its
// constants), the registers, the order of the blocks, the encodings of
// constants, the dead instructions, the addresses and all padding.
package flagexec
