package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Point   string
	Kind    string
	options string
}

// Mounts returns all that this process sees, in the order of the kernel.
func Mounts() ([]Mount, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(raw)), nil
}

// parseMounts reads mountinfo, see proc_pid_mountinfo(5): a number of optional fields ends with a lone "-".
func parseMounts(mountinfo string) []Mount {
	var all []Mount
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 {
			continue
		}
		all = append(all, Mount{
			Point:   unescapeMount(fields[4]),
			Kind:    fields[dash+1],
			options: fields[dash+3],
		})
	}
	return all
}

// unescapeMount undoes the kernel's octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	for _, r := range []struct{ escape, char string }{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		s = strings.ReplaceAll(s, r.escape, r.char)
	}
	return s
}

// Below reports whether path is dir or lies in it.
func Below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// MountsBelow returns the mount points in dir, deepest first, as often as something is mounted there.
func MountsBelow(all []Mount, dir string) []string {
	var points []string
	for _, m := range all {
		if Below(m.Point, dir) {
			points = append(points, m.Point)
		}
	}
	// Of several on one point the latest is listed last and must go first.
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points
}

// UnmountBelow unmounts everything in dir. What is busy is detached: its users are gone or about to go.
func UnmountBelow(dir string) error {
	all, err := Mounts()
	if err != nil {
		return err
	}
	for _, point := range MountsBelow(all, dir) {
		err := syscall.Unmount(point, 0)
		if errors.Is(err, syscall.EBUSY) {
			err = syscall.Unmount(point, syscall.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}
