package flagexec_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/berg/flagexec"
)

// headers is what every file starts with: an ELF header of 64 bytes and three
// program headers of 56.
const headers = 64 + 3*56

// sizeLimit keeps the file far below the 1 MiB that a ConfigMap may hold.
const sizeLimit = 5 << 10

func TestBuildRefusesWithoutNamingTheFlag(t *testing.T) {
	secret := "flag{do-not-tell}"
	long := strings.Repeat(secret, 1+flagexec.MaxFlagLength/len(secret))
	for name, c := range map[string]struct {
		flag string
		want error
	}{
		"empty":    {"", flagexec.ErrFlagEmpty},
		"too long": {long, flagexec.ErrFlagTooLong},
		"one over": {long[:flagexec.MaxFlagLength+1], flagexec.ErrFlagTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			image, err := flagexec.Build(c.flag, []byte("seed"))
			if !errors.Is(err, c.want) {
				t.Fatalf("Build: error %v, want %v", err, c.want)
			}
			if image != nil {
				t.Errorf("Build: %d bytes in addition to the error", len(image))
			}
			if strings.Contains(err.Error(), "do-not-tell") {
				t.Errorf("the error names the flag: %v", err)
			}
		})
	}
}

// A change of these sums means that every instance's file changes with the next
// release of the operator, which applies it to the ConfigMaps of running instances.
func TestBuildGivesTheSameBytesInEveryRelease(t *testing.T) {
	for _, c := range []struct{ flag, seed, sum string }{
		{"flag{golden}", "", "2ab3ca99a51aeb81e6531f2a3488ecf63f4e9bbf73c5d9ea3abf3eddaec12752"},
		{"flag{golden}", "0194d1c2-7a3e-7c11-9c55-2f0a4f0f6f10", "861f8b07753885299b25148d4a5fe73ecbb74890414e2ac17e1bd24f2d301a15"},
		{"f", "seed", "0c191f3485fe24ad9b5c93e404f8d84ca6235acd0865f1f4934ad189ba349412"},
		{strings.Repeat("flag{ü}", 128), "seed", "6df6a13b713d2132093bf9d797cf0301dcedcb4c914f9e692ed87f93ae188900"},
	} {
		sum := sha256.Sum256(build(t, c.flag, []byte(c.seed)))
		if got := hex.EncodeToString(sum[:]); got != c.sum {
			t.Errorf("Build(%d bytes, seed %q): sha256 %s, want %s", len(c.flag), c.seed, got, c.sum)
		}
	}
}

func TestBuildIsPure(t *testing.T) {
	flag, seed := "flag{once and again}", []byte("seed")
	want := build(t, flag, seed)
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if !bytes.Equal(build(t, flag, seed), want) {
				t.Error("a second Build of one flag and seed gave other bytes")
			}
		})
	}
	if string(seed) != "seed" {
		t.Error("Build changed the caller's seed")
	}
}

// How much two files may have in common is a matter of chance: zeros of small
// numbers and prefixes of instructions fall together anywhere.
func TestSeedsGiveDifferentFiles(t *testing.T) {
	const flag = "flag{the same in every instance}"
	const pairs, limit = 200, 0.15
	total := 0.0
	for i := range pairs {
		a := build(t, flag, seedNumber(2*i))
		b := build(t, flag, seedNumber(2*i+1))
		total += alike(codeOf(t, a), codeOf(t, b))
	}
	if mean := total / pairs; mean > limit {
		t.Errorf("%.0f %% of the code bytes are the same under two seeds, want at most %.0f %%", 100*mean, 100*limit)
	}
}

// Two flags under one seed must not share a key stream: xor of the two files
// would cancel it and leave xor of the flags.
func TestFlagsOfOneSeedDoNotCancel(t *testing.T) {
	a, b := "flag{aaaaaaaaaaaaaaaaaaaaaaaa}", "flag{bbbbbbbbbbbbbbbbbbbbbbbb}"
	for i := range 20 {
		if same := alike(build(t, a, seedNumber(i))[headers:], build(t, b, seedNumber(i))[headers:]); same > 0.25 {
			t.Errorf("seed %d: %.0f %% of the bytes are the same for two flags", i, 100*same)
		}
	}
}

func TestFileHasTheDocumentedForm(t *testing.T) {
	for _, length := range []int{1, 2, 3, 16, 100, 511, 1024} {
		for i := range 20 {
			checkForm(t, build(t, textFlag(length, i), seedNumber(i)))
		}
	}
}

func TestFileHasNoPrintableRun(t *testing.T) {
	for i := range 200 {
		// The longest flags leave no chance to luck: the encoded bytes alone
		// would hold twenty such runs.
		for _, length := range []int{32, flagexec.MaxFlagLength} {
			image := build(t, textFlag(length, i), seedNumber(i))
			if run := maxPrintable(image); run >= 4 {
				t.Errorf("flag of %d bytes, seed %d: a printable run of %d bytes", length, i, run)
			}
		}
	}
}

func TestBinutilsFindNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flag")
	const flag = "flag{binutils are to find nothing in here}"
	writeExecutable(t, file, build(t, flag, []byte("seed")), 0o755)
	for _, c := range []struct {
		tool []string
		want string
	}{
		{[]string{"strings", "-a", file}, ""},
		{[]string{"readelf", "-W", "-S", file}, "There are no sections in this file."},
		{[]string{"nm", "-a", file}, "nm: " + file + ": no symbols"},
	} {
		t.Run(strings.Join(c.tool[:len(c.tool)-1], " "), func(t *testing.T) {
			if _, err := exec.LookPath(c.tool[0]); err != nil {
				t.Skipf("%s is not installed; the checks without it still run", c.tool[0])
			}
			out, _ := exec.Command(c.tool[0], c.tool[1:]...).CombinedOutput()
			if got := strings.TrimSpace(string(out)); got != c.want {
				t.Errorf("printed %q, want %q", got, c.want)
			}
		})
	}
}

// The search is written the way a solver would write it, key by key, and so
// shares nothing with the check inside Build.
func TestNoSimpleSearchFindsTheFlag(t *testing.T) {
	flags := []string{
		"flag{w3lc0me_t0_the_m0untains_a3f2c8d91e47}",
		"flag{0r161n4l}",
		"berg{ünïcødé-フラグ-🏔}",
		strings.Repeat("0123456789abcdef", 8),
	}
	for i := range 12 {
		flags = append(flags, textFlag(8+7*i, i))
	}
	for i, flag := range flags {
		image := build(t, flag, seedNumber(i))
		if strings.Contains(string(image), flag) {
			t.Fatalf("flag %d is in the file as it is", i)
		}
		for key := range 256 {
			for name, transform := range map[string]func(byte) byte{
				"xor": func(b byte) byte { return b ^ byte(key) },
				"add": func(b byte) byte { return b + byte(key) },
			} {
				view := mapBytes(image[headers:], transform)
				if at := findPiece(view, []byte(flag), 5); at >= 0 {
					t.Errorf("flag %d: bytes %d to %d lie open under %s %#02x", i, at, at+5, name, key)
				}
				if at := findPiece(view, mirrored(flag), 5); at >= 0 {
					t.Errorf("flag %d: mirrored bytes %d to %d lie open under %s %#02x", i, at, at+5, name, key)
				}
			}
		}
	}
}

// A flag that is a piece of every program leaves no image without a match;
// Build must still give one that works.
func TestFlagsMadeOfMachineCode(t *testing.T) {
	for _, flag := range []string{"\x0f\x05", "\x00\x00\x00\x00\x00\x00", "\x7fELF\x02\x01\x01", "\xff\xff\xff\xff\x0f\x05"} {
		runAndCompare(t, build(t, flag, []byte("seed")), flag)
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, length := range []int{32, 1024} {
		flag := textFlag(length, 1)
		b.Run(fmt.Sprintf("%d bytes", length), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := flagexec.Build(flag, seedNumber(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func build(t testing.TB, flag string, seed []byte) []byte {
	t.Helper()
	image, err := flagexec.Build(flag, seed)
	if err != nil {
		t.Fatalf("Build of a flag of %d bytes: %v", len(flag), err)
	}
	return image
}

// checkForm reads the file with the standard library's reader, which knows
// nothing of the writer.
func checkForm(t testing.TB, image []byte) {
	t.Helper()
	if len(image) > sizeLimit {
		t.Errorf("the file has %d bytes, want at most %d", len(image), sizeLimit)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatalf("not an ELF file: %v", err)
	}
	if file.Class != elf.ELFCLASS64 || file.Machine != elf.EM_X86_64 || file.Type != elf.ET_EXEC {
		t.Errorf("is %v %v %v, want a 64-bit x86-64 executable", file.Class, file.Machine, file.Type)
	}
	if len(file.Sections) != 0 {
		t.Errorf("has %d sections, want none", len(file.Sections))
	}
	if symbols, err := file.Symbols(); err == nil {
		t.Errorf("has %d symbols, want none", len(symbols))
	}
	stack, entry := false, false
	end := uint64(0)
	for _, p := range file.Progs {
		switch p.Type {
		case elf.PT_GNU_STACK:
			stack = p.Flags == elf.PF_R|elf.PF_W
		case elf.PT_LOAD:
			checkSegment(t, p.ProgHeader, uint64(len(image)), end)
			end = (p.Vaddr + p.Memsz + 0xfff) &^ 0xfff
			inside := file.Entry >= p.Vaddr && file.Entry < p.Vaddr+p.Memsz
			entry = entry || inside && p.Flags&elf.PF_X != 0
		default:
			t.Errorf("unexpected program header %v", p.Type)
		}
	}
	if !stack {
		t.Error("the stack is not declared read-write without execute")
	}
	if !entry {
		t.Errorf("the entry %#x is not in the executable segment", file.Entry)
	}
}

// checkSegment is given the size of the file and the first page that is free.
func checkSegment(t testing.TB, p elf.ProgHeader, size, free uint64) {
	t.Helper()
	if p.Flags&elf.PF_W != 0 {
		t.Errorf("segment at %#x is writable (%v)", p.Vaddr, p.Flags)
	}
	if p.Off%0x1000 != p.Vaddr%0x1000 || p.Align != 0x1000 {
		t.Errorf("segment at %#x, offset %#x, alignment %#x: not congruent within a page", p.Vaddr, p.Off, p.Align)
	}
	if p.Off+p.Filesz > size || p.Filesz != p.Memsz {
		t.Errorf("segment at %#x is not all in the file", p.Vaddr)
	}
	if p.Vaddr&^0xfff < free {
		t.Errorf("segment at %#x shares a page with the one before it", p.Vaddr)
	}
}

func codeOf(t testing.TB, image []byte) []byte {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Progs {
		if p.Flags&elf.PF_X != 0 {
			return image[p.Off : p.Off+p.Filesz]
		}
	}
	t.Fatal("no executable segment")
	return nil
}

// alike is the share of places, of the shorter one's, where both have the same
// byte.
func alike(a, b []byte) float64 {
	n, same := min(len(a), len(b)), 0
	for i := range n {
		if a[i] == b[i] {
			same++
		}
	}
	return float64(same) / float64(n)
}

func maxPrintable(b []byte) int {
	limit, run := 0, 0
	for _, c := range b {
		if c >= ' ' && c <= '~' || c == '\t' {
			run++
		} else {
			run = 0
		}
		limit = max(limit, run)
	}
	return limit
}

// findPiece returns where in the flag the first piece of that length starts
// that occurs in view, or -1. A piece of one repeated byte is no find: it equals
// every other such run under some key.
func findPiece(view, flag []byte, length int) int {
	for i := 0; i+length <= len(flag); i++ {
		piece := flag[i : i+length]
		if bytes.Count(piece, piece[:1]) < length && bytes.Contains(view, piece) {
			return i
		}
	}
	return -1
}

func mapBytes(b []byte, f func(byte) byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = f(b[i])
	}
	return out
}

func mirrored(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := len(s) - 1; i >= 0; i-- {
		out = append(out, s[i])
	}
	return out
}

func seedNumber(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// textFlag returns a flag of that many printable bytes, another for each
// variant.
func textFlag(length, variant int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789_{}-"
	random := rand.New(rand.NewPCG(uint64(length), uint64(variant)))
	flag := make([]byte, length)
	for i := range flag {
		flag[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(flag)
}
