package flagexec

import (
	"encoding/binary"
	"fmt"
)

// register is the number of a 64-bit general purpose register as the
// instruction encoding counts them.
type register byte

const (
	rax register = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8
	r9
	r10
	r11
	r12
	r13
	r14
	r15
)

// condition is the low nibble of a conditional jump's opcode.
type condition byte

const (
	ifZero        condition = 0x4
	ifNotZero     condition = 0x5
	ifNotNegative condition = 0x9
	ifNotPositive condition = 0xe // signed: less or equal
)

// assembler appends x86-64 instructions, each method one instruction. Operands
// are 64 bits wide unless the name says otherwise. Jumps go to labels, which
// link resolves.
type assembler struct {
	code   []byte
	labels map[string]int
	fixups []fixup
}

// fixup is a 32-bit displacement, relative to the byte after it, that waits for
// the address of its label.
type fixup struct {
	at    int
	label string
}

func newAssembler() *assembler {
	return &assembler{labels: map[string]int{}}
}

// label names the place of the next instruction.
func (a *assembler) label(name string) { a.labels[name] = len(a.code) }

// link fills in all displacements. Labels outside the code are given in
// outside, by their distance from the first byte of the code.
func (a *assembler) link(outside map[string]int) error {
	for _, f := range a.fixups {
		target, known := a.labels[f.label]
		if !known {
			target, known = outside[f.label]
		}
		if !known {
			return fmt.Errorf("flagexec: jump to the unknown label %q", f.label)
		}
		binary.LittleEndian.PutUint32(a.code[f.at:], uint32(int32(target-(f.at+4))))
	}
	return nil
}

func (a *assembler) bytes(b ...byte) { a.code = append(a.code, b...) }

func (a *assembler) imm32(v uint32) { a.code = binary.LittleEndian.AppendUint32(a.code, v) }

func (a *assembler) displacementTo(label string) {
	a.fixups = append(a.fixups, fixup{at: len(a.code), label: label})
	a.imm32(0)
}

// rex builds the prefix that selects 64-bit operands and carries the high bits
// of the register numbers in the reg and rm fields.
func rex(wide bool, reg, rm register) byte {
	prefix := byte(0x40) | byte(reg>>3)<<2 | byte(rm>>3)
	if wide {
		prefix |= 0x08
	}
	return prefix
}

// direct is a ModRM byte whose rm field is a register.
func direct(reg, rm register) byte { return 0xc0 | byte(reg&7)<<3 | byte(rm&7) }

// pair is an instruction of the form op rm, reg.
func (a *assembler) pair(opcode byte, rm, reg register) {
	a.bytes(rex(true, reg, rm), opcode, direct(reg, rm))
}

func (a *assembler) mov(dst, src register)  { a.pair(0x89, dst, src) }
func (a *assembler) add(dst, src register)  { a.pair(0x01, dst, src) }
func (a *assembler) sub(dst, src register)  { a.pair(0x29, dst, src) }
func (a *assembler) xor(dst, src register)  { a.pair(0x31, dst, src) }
func (a *assembler) test(dst, src register) { a.pair(0x85, dst, src) }

func (a *assembler) imul(dst, src register) {
	a.bytes(rex(true, dst, src), 0x0f, 0xaf, direct(dst, src))
}

// immediate is an instruction of the form op rm, imm32; the operand is
// sign-extended to 64 bits. The extension number selects the operation.
func (a *assembler) immediate(extension byte, rm register, v int32) {
	a.bytes(rex(true, 0, rm), 0x81, direct(register(extension), rm))
	a.imm32(uint32(v))
}

func (a *assembler) addImm(dst register, v int32) { a.immediate(0, dst, v) }
func (a *assembler) subImm(dst register, v int32) { a.immediate(5, dst, v) }
func (a *assembler) xorImm(dst register, v int32) { a.immediate(6, dst, v) }
func (a *assembler) cmpImm(dst register, v int32) { a.immediate(7, dst, v) }

// movImm32 sets the low half and clears the high half.
func (a *assembler) movImm32(dst register, v uint32) {
	a.bytes(rex(false, 0, dst), 0xb8|byte(dst&7))
	a.imm32(v)
}

func (a *assembler) movImm64(dst register, v uint64) {
	a.bytes(rex(true, 0, dst), 0xb8|byte(dst&7))
	a.code = binary.LittleEndian.AppendUint64(a.code, v)
}

// shift is an instruction of the form op rm, imm8 of the shift group.
func (a *assembler) shift(extension byte, dst register, by int) {
	a.bytes(rex(true, 0, dst), 0xc1, direct(register(extension), dst), byte(by))
}

func (a *assembler) rol(dst register, by int) { a.shift(0, dst, by) }
func (a *assembler) shl(dst register, by int) { a.shift(4, dst, by) }
func (a *assembler) shr(dst register, by int) { a.shift(5, dst, by) }

// memory emits ModRM, SIB and displacement for [base+offset]. A base with the
// low bits of rsp means "SIB follows" and always needs one.
func (a *assembler) memory(reg, base register, offset int32) {
	a.bytes(0x80 | byte(reg&7)<<3 | byte(base&7))
	if base&7 == rsp {
		a.bytes(0x24)
	}
	a.imm32(uint32(offset))
}

// lea sets dst to base+offset and leaves the flags alone.
func (a *assembler) lea(dst, base register, offset int32) {
	a.bytes(rex(true, dst, base), 0x8d)
	a.memory(dst, base, offset)
}

// leaLabel sets dst to the address of the label.
func (a *assembler) leaLabel(dst register, label string) {
	a.bytes(rex(true, dst, 0), 0x8d, byte(dst&7)<<3|0x05)
	a.displacementTo(label)
}

// loadByte sets dst to the byte at [base+offset], the upper bits to zero.
func (a *assembler) loadByte(dst, base register, offset int32) {
	a.bytes(rex(false, dst, base), 0x0f, 0xb6)
	a.memory(dst, base, offset)
}

// storeByte writes the low byte of src. The prefix is there even when it is
// empty: without one the numbers of rsi and rdi mean dh and bh.
func (a *assembler) storeByte(base register, offset int32, src register) {
	a.bytes(rex(false, src, base), 0x88)
	a.memory(src, base, offset)
}

func (a *assembler) store(base register, offset int32, src register) {
	a.bytes(rex(true, src, base), 0x89)
	a.memory(src, base, offset)
}

func (a *assembler) jump(label string) {
	a.bytes(0xe9)
	a.displacementTo(label)
}

func (a *assembler) jumpIf(c condition, label string) {
	a.bytes(0x0f, 0x80|byte(c))
	a.displacementTo(label)
}

// syscall clobbers rax, rcx and r11.
func (a *assembler) syscall() { a.bytes(0x0f, 0x05) }

// fill writes the low byte of rax to the rcx bytes at rdi.
func (a *assembler) fill() { a.bytes(0xf3, 0xaa) }

// trap ends the process with SIGILL.
func (a *assembler) trap() { a.bytes(0x0f, 0x0b) }
