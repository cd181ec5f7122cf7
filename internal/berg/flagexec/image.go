package flagexec

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const (
	pageSize          = 0x1000
	elfHeaderSize     = 64
	programHeaderSize = 56
	headersSize       = elfHeaderSize + 3*programHeaderSize
)

// segment is one part of the file that is loaded into memory.
type segment struct {
	content []byte
	access  elf.ProgFlag
	// offset and address of the first byte in the file and in memory.
	offset, address int
}

// writeImage returns the whole file for one set of decisions.
func writeImage(d *dice, flag string) ([]byte, error) {
	c := newCipher(d)
	stride := d.between(2, 3)
	before := d.between(16, 128)
	content := d.padding(before + len(flag)*stride + d.between(16, 256))
	for i, b := range c.encode(flag) {
		content[before+i*stride] = b
	}
	assembled, entry := writeProgram(d, len(flag), stride, c)

	data := &segment{content: content, access: elf.PF_R}
	code := &segment{content: assembled.code, access: elf.PF_R | elf.PF_X}
	segments := []*segment{data, code}
	shuffle(d, segments)

	// Addresses stay far above vm.mmap_min_addr and below 2 GiB, where every
	// kernel has room for a fixed mapping. The offset within the page is that of
	// the file, or the loader refuses to map it.
	base := d.between(0x400, 0x40000) * pageSize
	offset := headersSize
	for _, s := range segments {
		offset += d.below(48)
		s.offset, s.address = offset, base+offset
		offset += len(s.content)
		base += d.between(1, 64) * pageSize
	}

	if err := assembled.link(map[string]int{dataLabel: data.address + before - code.address}); err != nil {
		return nil, err
	}

	image := headers(code.address+assembled.labels[entry], segments)
	for _, s := range segments {
		image = append(image, d.padding(s.offset-len(image))...)
		image = append(image, s.content...)
	}
	return image, nil
}

// headers returns the ELF header and the program headers. Segments must be in
// ascending order of address: the specification of ELF demands it.
func headers(entry int, segments []*segment) []byte {
	var out bytes.Buffer
	header := elf.Header64{
		Type:      uint16(elf.ET_EXEC),
		Machine:   uint16(elf.EM_X86_64),
		Version:   uint32(elf.EV_CURRENT),
		Entry:     uint64(entry),
		Phoff:     elfHeaderSize,
		Ehsize:    elfHeaderSize,
		Phentsize: programHeaderSize,
		Phnum:     uint16(len(segments) + 1),
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	put(&out, header)
	for _, s := range segments {
		put(&out, elf.Prog64{
			Type:   uint32(elf.PT_LOAD),
			Flags:  uint32(s.access),
			Off:    uint64(s.offset),
			Vaddr:  uint64(s.address),
			Paddr:  uint64(s.address),
			Filesz: uint64(len(s.content)),
			Memsz:  uint64(len(s.content)),
			Align:  pageSize,
		})
	}
	// Without this header, or with PF_X in it, Linux makes the stack executable.
	put(&out, elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16})
	return out.Bytes()
}

// put appends a header of fixed size, which cannot fail.
func put(out *bytes.Buffer, header any) {
	if err := binary.Write(out, binary.LittleEndian, header); err != nil {
		panic(fmt.Sprintf("flagexec: ELF header: %v", err))
	}
}
