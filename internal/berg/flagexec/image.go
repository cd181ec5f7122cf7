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

// writeImage returns the whole file for one stream of random numbers. All random numbers are drawn in this order. Another order
// would change every image.
func writeImage(r random, flag string) []byte {
	key := r.key()
	before := r.between(16, 128)
	content := r.padding(before + len(flag)*stride + r.between(16, 256))
	for i, b := range encode(flag, key) {
		content[before+i*stride] = b
	}

	// Addresses stay far above vm.mmap_min_addr and below 2 GiB, where every kernel can place a fixed
	// mapping. The offset within the page equals the offset in the file, or the loader refuses to map
	// it.
	base := r.between(0x400, 0x40000) * pageSize
	data := segment{content: content, access: elf.PF_R, offset: headersSize + r.between(0, 48)}
	data.address = base + data.offset

	entry := r.between(0, 128)
	code := segment{access: elf.PF_R | elf.PF_X, offset: data.offset + len(content) + r.between(0, 48)}
	code.address = base + r.between(1, 64)*pageSize + code.offset
	code.content = append(r.padding(entry), newCode(data.address+before, len(flag), key)...)
	code.content = append(code.content, r.padding(r.between(16, 128))...)

	image := headers(code.address+entry, data, code)
	for _, s := range []segment{data, code} {
		image = append(image, r.padding(s.offset-len(image))...)
		image = append(image, s.content...)
	}
	return image
}

// headers returns the ELF header and the program headers. Segments must be in
// ascending order of address: the specification of ELF demands it.
func headers(entry int, segments ...segment) []byte {
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
