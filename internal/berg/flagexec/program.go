package flagexec

// Numbers of the Linux system call interface on x86-64.
const (
	sysWrite     = 1
	sysPoll      = 7
	sysExitGroup = 231

	errnoInterrupted = 4
	errnoTryAgain    = 11

	standardOutput = 1
	// pollForOutput is a struct pollfd {fd: 1, events: POLLOUT} as one word.
	pollForOutput = 4<<32 | standardOutput
)

// dataLabel is where the first encoded byte lies.
const dataLabel = "data"

// program emits the machine code of one image.
type program struct {
	*assembler
	dice *dice

	flagLength int
	stride     int
	cipher     cipher

	// frame is the room taken on the stack, buffer the flag's offset in it. The
	// first eight bytes hold the argument of poll.
	frame, buffer int

	// The kernel keeps all of these over a system call.
	source, target, count, state, scratch, value, status register
	spare                                                []register
}

// writeProgram returns the code, not yet linked, and the label of its entry.
func writeProgram(d *dice, flagLength, stride int, c cipher) (*assembler, string) {
	p := &program{assembler: newAssembler(), dice: d, flagLength: flagLength, stride: stride, cipher: c}
	p.buffer = d.between(16, 64)
	p.frame = (p.buffer + flagLength + d.between(16, 256)) &^ 15

	pool := []register{rbx, rbp, r8, r9, r10, r12, r13, r14, r15}
	shuffle(d, pool)
	for i, role := range []*register{&p.source, &p.target, &p.count, &p.state, &p.scratch, &p.value, &p.status} {
		*role = pool[i]
	}
	p.spare = pool[7:]

	blocks := []struct {
		name string
		emit func()
	}{
		{"start", p.start},
		{"decode", p.decode},
		{"prepare", p.prepare},
		{"write", p.write},
		{"refused", p.refused},
		{"wait", p.wait},
		{"end", p.end},
	}
	shuffle(d, blocks)
	for _, b := range blocks {
		p.bytes(d.padding(d.below(12))...)
		p.label(b.name)
		b.emit()
	}
	p.bytes(d.padding(d.below(12))...)
	return p.assembler, "start"
}

func (p *program) start() {
	p.noise()
	p.subImm(rsp, int32(p.frame))
	p.inAnyOrder(
		func() { p.leaLabel(p.source, dataLabel) },
		func() { p.lea(p.target, rsp, int32(p.buffer)) },
		func() { p.set(p.count, uint32(p.flagLength)) },
		func() { p.setWide(p.state, p.cipher.key) },
	)
	p.jump("decode")
}

func (p *program) decode() {
	p.label("next byte")
	for _, s := range p.cipher.steps {
		s.emit(p.assembler, p.state, p.scratch)
	}
	p.noise()
	p.mov(p.scratch, p.state)
	p.shr(p.scratch, p.cipher.shift)
	p.loadByte(p.value, p.source, 0)
	p.cipher.emitMix(p.assembler, p.value, p.scratch)
	p.storeByte(p.target, 0, p.value)
	p.inAnyOrder(
		func() { p.addImm(p.source, int32(p.stride)) },
		func() { p.addImm(p.target, 1) },
	)
	p.subImm(p.count, 1)
	p.jumpIf(ifNotZero, "next byte")
	p.jump("prepare")
}

// prepare hands over from decoding to writing: target is what is to be written
// next and count what is left.
func (p *program) prepare() {
	p.inAnyOrder(
		func() { p.lea(p.target, rsp, int32(p.buffer)) },
		func() { p.set(p.count, uint32(p.flagLength)) },
		func() { p.set(p.status, 1) },
	)
	p.jump("write")
}

func (p *program) write() {
	p.inAnyOrder(
		func() { p.set(rax, sysWrite) },
		func() { p.set(rdi, standardOutput) },
		func() { p.mov(rsi, p.target) },
		func() { p.mov(rdx, p.count) },
	)
	p.syscall()
	p.test(rax, rax)
	p.jumpIf(ifNotPositive, "refused")
	p.add(p.target, rax)
	p.sub(p.count, rax)
	p.jumpIf(ifNotZero, "write")
	p.set(p.status, 0)
	p.jump("end")
}

func (p *program) refused() {
	p.cmpImm(rax, -errnoInterrupted)
	p.jumpIf(ifZero, "write")
	p.cmpImm(rax, -errnoTryAgain)
	p.jumpIf(ifZero, "wait")
	p.noise()
	p.jump("end")
}

// wait is for a standard output that somebody else made non-blocking, as
// servers do with the pipes they share with their children.
func (p *program) wait() {
	p.setWide(p.scratch, pollForOutput)
	p.store(rsp, 0, p.scratch)
	p.inAnyOrder(
		func() { p.set(rax, sysPoll) },
		func() { p.mov(rdi, rsp) },
		func() { p.set(rsi, 1) },
		func() { p.setWide(rdx, ^uint64(0)) },
	)
	p.syscall()
	p.test(rax, rax)
	p.jumpIf(ifNotNegative, "write")
	p.cmpImm(rax, -errnoInterrupted)
	p.jumpIf(ifZero, "write")
	p.jump("end")
}

// end leaves neither flag nor key behind for whoever looks at the process as it
// exits.
func (p *program) end() {
	p.inAnyOrder(
		func() { p.mov(rdi, rsp) },
		func() { p.set(rcx, uint32(p.frame)) },
		func() { p.set(rax, 0) },
	)
	p.fill()
	p.inAnyOrder(
		func() { p.set(p.state, 0) },
		func() { p.set(p.scratch, 0) },
		func() { p.set(p.value, 0) },
		func() { p.mov(rdi, p.status) },
		func() { p.set(rax, sysExitGroup) },
	)
	p.syscall()
	p.trap()
}

// inAnyOrder emits statements that do not depend on each other, with dead
// instructions between them. The flags are undefined afterwards.
func (p *program) inAnyOrder(statements ...func()) {
	shuffle(p.dice, statements)
	for _, emit := range statements {
		emit()
		p.noise()
	}
}

// set loads a small number in one of several ways. It changes the flags.
func (p *program) set(dst register, v uint32) {
	key := p.dice.word()
	switch p.dice.below(4) {
	case 0:
		p.movImm32(dst, v^key)
		p.xorImm(dst, int32(key))
	case 1:
		p.movImm32(dst, v+key)
		p.subImm(dst, int32(key))
	case 2:
		p.xor(dst, dst)
		p.lea(dst, dst, int32(v+key))
		p.lea(dst, dst, -int32(key))
	default:
		p.movImm64(dst, uint64(v)-uint64(key))
		p.addImm(dst, int32(key))
	}
}

// setWide loads a number of 64 bits. It changes the flags.
func (p *program) setWide(dst register, v uint64) {
	first, second := p.dice.word(), p.dice.word()
	masked := v ^ uint64(first) ^ uint64(second)<<32
	p.movImm64(dst, masked)
	p.xorImm(dst, int32(first))
	p.rol(dst, 32)
	p.xorImm(dst, int32(second))
	p.rol(dst, 32)
}

// noise emits up to two instructions on registers nobody uses. It changes the
// flags.
func (p *program) noise() {
	for range p.dice.below(3) {
		dst := p.spare[p.dice.below(len(p.spare))]
		src := p.spare[p.dice.below(len(p.spare))]
		switch p.dice.below(6) {
		case 0:
			p.movImm32(dst, p.dice.word())
		case 1:
			p.add(dst, src)
		case 2:
			p.imul(dst, src)
		case 3:
			p.rol(dst, p.dice.between(1, 31))
		case 4:
			p.xorImm(dst, int32(p.dice.word()))
		default:
			p.lea(dst, src, int32(p.dice.word()))
		}
	}
}
