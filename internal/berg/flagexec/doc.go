// Package flagexec writes the program that a challenge offers as its
// executable flag: a static x86-64 Linux executable that prints one flag and
// nothing else.
//
// # What it is for
//
// A challenge with an executable flag asks its players to reach code execution:
// reading files must not be enough. The cluster keeps players from reading the
// file (mode 0111, CAP_DAC_OVERRIDE dropped). This package covers the rest. A
// file that leaks through a backup, a debugger or a careless mount must not give
// its flag to strings, grep or an xor brute force. A recipe of fixed offsets that
// was found on one instance must not apply to another one.
//
// This is obfuscation, not cryptography. The file holds everything needed to
// print the flag: a player who can read the file and disassembles it gets the
// flag.
//
// # The file
//
//	offset  size
//	0       64         ELF header: ET_EXEC, no section header table at all
//	64      3 × 56     program headers: two PT_LOAD, one PT_GNU_STACK
//	232     …          the two segments, with random bytes before each
//	                     data  r--  the encoded flag, one byte every 2,
//	                                random bytes around and in between
//	                     code  r-x  the decoder, 210 bytes, random bytes around
//
// No segment is writable and no segment but the code is executable; the stack
// is declared non-executable. The flag is decoded onto the stack, written to
// standard output, and wiped before the program ends. Each segment lies on
// pages of its own in memory and has p_offset congruent to p_vaddr modulo the
// page size, which Linux and gVisor both require. The file is below 4 KiB.
//
// # The program
//
// The decoder is the same in every image but for three constants: the address of
// the encoded flag, its length, and the key. The key, all padding and all
// addresses follow from the seed and the flag.
//
// # The Go files
//
//	flagexec.go  Build: one image after another, until one has no exposures
//	random.go    the bytes that follow from seed, flag and attempt
//	image.go     the headers and the segments
//	decoder.go   the machine code, and the encoding of the flag
//	exposure.go  what strings and a brute force would find in an image
package flagexec
