package host

import (
	"slices"
	"testing"
)

//nolint:dupword // type and source of a mount may be the same word
const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:5 master:2 - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
50 27 0:40 / /c/a/kubelet/pods/x rw - tmpfs tmpfs rw
51 27 0:41 / /c/a/kubelet rw - tmpfs tmpfs rw
52 51 0:42 / /c/a/kubelet rw - tmpfs tmpfs rw
53 27 0:43 / /c/ab rw - tmpfs tmpfs rw
54 27 0:44 / /c/a/with\040blank\134 rw - tmpfs tmpfs rw
not a line of mountinfo
`

func TestParseMounts(t *testing.T) {
	all := parseMounts(mountinfo)
	if len(all) != 9 {
		t.Fatalf("%d mounts, want 9: %+v", len(all), all)
	}
	if got, want := all[2], (Mount{Point: "/sys/fs/cgroup/cpuset", Kind: "cgroup", options: "rw,cpuset"}); got != want {
		t.Errorf("with optional fields: got %+v, want %+v", got, want)
	}
	if got, want := all[8].Point, `/c/a/with blank\`; got != want {
		t.Errorf("escapes: got %q, want %q", got, want)
	}
}

func TestMountsBelow(t *testing.T) {
	got := MountsBelow(parseMounts(mountinfo), "/c/a")
	want := []string{"/c/a/kubelet/pods/x", `/c/a/with blank\`, "/c/a/kubelet", "/c/a/kubelet"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
