package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/process"
)

// Hidden commands: the runner starts itself again for what must happen inside a new namespace.
const (
	commandNamespaces = "become-namespaces"
	commandInside     = "run-inside"
	commandUnname     = "remove-network-name"
)

// Reenter does what is asked of a program that was restarted by itself, and tells whether that is so. A program that
// brings up clusters with a real node must call it first, with the first of its arguments and the others.
func Reenter(command string, args []string) (ours bool, err error) {
	switch command {
	case commandNamespaces:
		return true, becomeNamespaces(args)
	case commandInside:
		return true, runInside(args)
	case commandUnname:
		return true, runUnname(args)
	}
	return false, nil
}

// namespaceHolder is the component that keeps the network and the mount namespace of a node in existence.
// It does nothing else. When it and all other processes have ended, the kernel drops every mount they had.
const namespaceHolder = "namespaces"

// nodeID names what a node has outside of its state directory: network namespace and control groups.
// It depends on the directory, for two users of one machine may choose the same name.
func nodeID(dir, name string) string { return "berg-" + name + "-" + digest(dir)[:4] }

// LinkName is the machine's end of the cable to the node; names of links have at most 15 characters.
func LinkName(dir string) string { return "berg-" + digest(dir)[:8] }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

const (
	netnsDir    = "/run/netns"
	programsDir = "/sys/fs/bpf"
	fullProc    = "/run/fullproc"
)

func (c *Cluster) id() string { return nodeID(c.dir, c.Name) }

func (c *Cluster) netns() string { return filepath.Join(netnsDir, c.id()) }

func (c *Cluster) nodeIP() string { return subnetAddress(c.Subnet, 2) }

// subnetAddress returns an address of 198.18.n.0/30, a range set aside for tests of networks (RFC 2544).
func subnetAddress(n, host int) string { return fmt.Sprintf("198.18.%d.%d", n, host) }

// Standard places of a node's programs that lie in covered directories, and where their content really is.
// What is not listed here is in memory.
var nodeDirectories = map[string]string{
	"/var/lib/kubelet":    "kubelet",
	"/var/lib/containerd": "containerd",
	"/var/log/pods":       "logs/pods",
}

// covered are replaced by empty ones in the node's mount namespace: kubelet and containerd use fixed paths in them.
var covered = []string{"/run", "/var/lib", "/var/log"}

// createNamespaces starts the holder, joins its network to the machine's and gives it a name.
func (c *Cluster) createNamespaces(ctx context.Context) error {
	for _, dir := range append([]string{"logs", "home", "tmp"}, mapValues(nodeDirectories)...) {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	if err := host.CreateGroups(c.id()); err != nil {
		return err
	}
	pid, err := c.startHolder()
	if err != nil {
		return err
	}
	if err := c.nameNetwork(pid); err != nil {
		return err
	}
	return c.connect(ctx, pid)
}

func mapValues(m map[string]string) []string {
	var values []string
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

// startHolder runs become-namespaces in new namespaces and waits until it has arranged them.
func (c *Cluster) startHolder() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	answer, report, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer answer.Close()
	defer report.Close()

	cmd := c.bare(component{name: namespaceHolder}, self, append([]string{commandNamespaces, c.dir, c.id()}, c.keptPaths()...))
	cmd.ExtraFiles = []*os.File{report}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("new namespaces: %w: profile node needs CAP_SYS_ADMIN", err)
	}
	go func() { _ = cmd.Wait() }()
	report.Close()
	said, err := io.ReadAll(answer)
	if err != nil {
		return 0, err
	}
	if string(said) != "ready" {
		return 0, fmt.Errorf("namespaces: %s", strings.TrimSpace(string(said)))
	}
	return cmd.Process.Pid, nil
}

// keptPaths must stay visible although they may lie in a covered directory.
func (c *Cluster) keptPaths() []string {
	paths := []string{c.dir}
	for _, dir := range c.Binaries {
		paths = append(paths, dir)
	}
	return paths
}

// becomeNamespaces runs in the new namespaces. It arranges them, reports on descriptor 3, and then only holds them.
func becomeNamespaces(args []string) error {
	report := os.NewFile(3, "report")
	syscall.CloseOnExec(3)
	err := func() error {
		if len(args) < 2 {
			return errors.New("this command is for the runner itself")
		}
		if err := host.JoinGroups(args[1]); err != nil {
			return err
		}
		return arrangeMounts(args[0], args[2:])
	}()
	if err == nil {
		// Pods are routed, not bridged. This one is the namespace's own, as all below /proc/sys/net.
		err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
	}
	sleep, lookup := exec.LookPath("sleep")
	if err = errors.Join(err, lookup); err != nil {
		fmt.Fprint(report, err)
		return err
	}
	fmt.Fprint(report, "ready")
	return syscall.Exec(sleep, []string{"sleep", "infinity"}, os.Environ())
}

func arrangeMounts(dir string, kept []string) error {
	// Nothing that is mounted from here on shows outside.
	if err := mountAt("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	// A copy of another cluster's network namespace would keep it alive after its end.
	all, err := host.Mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Kind == "nsfs" {
			_ = syscall.Unmount(m.Point, syscall.MNT_DETACH)
		}
	}

	// Opened before anything is covered: a descriptor still leads there afterwards.
	open := map[string]*os.File{}
	for _, path := range kept {
		if open[path], err = os.Open(path); err != nil {
			return err
		}
	}
	for _, cover := range covered {
		if err := mountAt("berg", cover, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=0755"); err != nil {
			return err
		}
	}
	for path, file := range open {
		if slices.ContainsFunc(covered, func(cover string) bool { return host.Below(path, cover) }) {
			if err := bind(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), path); err != nil {
				return err
			}
		}
		file.Close()
	}
	for point, source := range nodeDirectories {
		if err := bind(filepath.Join(dir, source), point); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/var/log/containers", 0o755); err != nil {
		return err
	}
	// Programs of the kernel are pinned here, each cluster's in a place of its own. A kernel without has no such place.
	if disk.Exists(programsDir) {
		if err := mountAt("berg", programsDir, "bpf", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "mode=0700"); err != nil {
			return err
		}
	}
	if err := shadowSettings(); err != nil {
		return err
	}
	// Of a process in a user namespace the kernel takes a mount of proc only where one can be seen that nothing lies over, in
	// whole or in part. That at /proc is none, by the shadows: pods with hostUsers: false would not start.
	if err := os.MkdirAll(fullProc, 0o755); err != nil {
		return err
	}
	if err := mountAt("proc", fullProc, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, snapshotterFile), []byte(snapshotter(filepath.Join(dir, "tmp"))), 0o600); err != nil {
		return err
	}
	// Volumes that pods share with the node want shared mounts; shared among this namespace alone.
	return mountAt("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// nodeSettings are settings of the whole kernel that a kubelet insists on and sets, or Cilium. They would outlive the
// cluster, and a machine that reboots on an oops is not what its user has asked for.
var nodeSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"kernel/unprivileged_bpf_disabled", "kernel/timer_migration",
}

// shadowSettings mounts plain files over them, which accept every value.
func shadowSettings() error {
	const shadows = "/run/berg"
	if err := os.MkdirAll(shadows, 0o755); err != nil {
		return err
	}
	for _, setting := range nodeSettings {
		file, shadow := filepath.Join("/proc/sys", setting), filepath.Join(shadows, filepath.Base(setting))
		value, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(shadow, value, 0o644); err != nil {
			return err
		}
		if err := mountAt(shadow, file, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func bind(source, point string) error {
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	return mountAt(source, point, "", syscall.MS_BIND|syscall.MS_REC, "")
}

func mountAt(source, point, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, point, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", point, err)
	}
	return nil
}

const snapshotterFile = "snapshotter"

// snapshotter tells which one containerd can use here: overlayfs does not lie on every file system,
// on another overlayfs for one.
func snapshotter(tmp string) string {
	dir, err := os.MkdirTemp(tmp, "overlay-")
	if err != nil {
		return "native"
	}
	defer os.RemoveAll(dir)
	var paths []any
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		path := filepath.Join(dir, sub)
		if err := os.Mkdir(path, 0o700); err != nil {
			return "native"
		}
		paths = append(paths, path)
	}
	merged := filepath.Join(dir, "merged")
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", paths[:3]...)
	if err := syscall.Mount("overlay", merged, "overlay", 0, data); err != nil {
		return "native"
	}
	if err := syscall.Unmount(merged, 0); err != nil {
		return "native"
	}
	return "overlayfs"
}

// inside wraps a program so that it runs in the cluster's control groups and namespaces, as the same process.
func (c *Cluster) inside(path string, args []string) (string, []string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	running, err := c.Running()
	if err != nil {
		return "", nil, err
	}
	holder := running[namespaceHolder]
	if holder == 0 {
		return "", nil, errors.New("the namespaces of the node are gone: up makes them again")
	}
	return self, append([]string{commandInside, c.id(), strconv.Itoa(holder), path}, args...), nil
}

// runInside is the other half of inside.
func runInside(args []string) error {
	if len(args) < 3 {
		return errors.New("this command is for the runner itself")
	}
	if err := host.JoinGroups(args[0]); err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	return syscall.Exec(nsenter, append([]string{"nsenter", "--target=" + args[1], "--mount", "--net", "--"}, args[2:]...), os.Environ())
}

// nameNetwork gives the holder's network namespace a name that "ip netns" knows.
func (c *Cluster) nameNetwork(holder int) error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.netns(), os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	return mountAt(fmt.Sprintf("/proc/%d/ns/net", holder), c.netns(), "", syscall.MS_BIND, "")
}

// connect lays a cable between the machine and the node: 198.18.n.1 here, 198.18.n.2, the node's address, there.
// Through it the machine reaches API server, NodePorts and registry; the node reaches nothing beyond the machine,
// and its pods not even that, even if the machine forwards for others.
func (c *Cluster) connect(ctx context.Context, holder int) error {
	// Held from the choice of a subnet until its address is visible to the next process.
	lock, err := disk.AwaitLock(ctx, filepath.Dir(netnsDir), func(string) {})
	if err != nil {
		return err
	}
	defer lock.Release()
	if c.Subnet, err = freeSubnet(); err != nil {
		return err
	}

	link, ns := LinkName(c.dir), c.id()
	gateway, network := subnetAddress(c.Subnet, 1), subnetAddress(c.Subnet, 0)+"/30"
	for _, command := range []string{
		fmt.Sprintf("ip link add %s type veth peer name uplink netns %d", link, holder),
		fmt.Sprintf("ip address add %s/30 dev %s", gateway, link),
		fmt.Sprintf("ip link set %s up", link),
		fmt.Sprintf("ip -n %s link set lo up", ns),
		fmt.Sprintf("ip -n %s address add %s/30 dev uplink", ns, c.nodeIP()),
		fmt.Sprintf("ip -n %s link set uplink up", ns),
		// kubelet and kube-proxy want a default route.
		fmt.Sprintf("ip -n %s route add default via %s", ns, gateway),
		fmt.Sprintf("nsenter --net=%s iptables -w -A OUTPUT -o uplink ! -d %s -j REJECT", c.netns(), network),
		fmt.Sprintf("nsenter --net=%s iptables -w -A FORWARD -o uplink -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", c.netns()),
		fmt.Sprintf("nsenter --net=%s iptables -w -A FORWARD -o uplink -j REJECT", c.netns()),
	} {
		if err := host.Run(ctx, command); err != nil {
			return err
		}
	}
	c.Bandwidth = probeBandwidth(ctx, ns)
	return nil
}

// probeBandwidth tells whether the kernel has what limits on a pod's traffic are made of. Where it has not,
// the plugin would let every pod fail that asks for a limit.
func probeBandwidth(ctx context.Context, ns string) bool {
	for _, command := range []string{
		"ip -n %s link add probe type ifb",
		"tc -n %s qdisc add dev probe root tbf rate 1mbit burst 32kb latency 25ms",
		"tc -n %s qdisc add dev uplink ingress",
		"tc -n %s filter add dev uplink parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev probe",
		"tc -n %s qdisc delete dev uplink ingress",
		"ip -n %s link delete probe",
	} {
		if err := host.Run(ctx, fmt.Sprintf(command, ns)); err != nil {
			_ = host.Run(ctx, fmt.Sprintf("tc -n %s qdisc delete dev uplink ingress", ns))
			_ = host.Run(ctx, fmt.Sprintf("ip -n %s link delete probe", ns))
			return false
		}
	}
	return true
}

// freeSubnet finds an n of which no address of this machine lies in 198.18.n.0/24.
func freeSubnet() (int, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return 0, err
	}
	return pickSubnet(addresses)
}

func pickSubnet(addresses []net.Addr) (int, error) {
	taken := map[int]bool{}
	for _, address := range addresses {
		n, ok := address.(*net.IPNet)
		if !ok {
			continue
		}
		for i := range 256 {
			if n.Contains(net.IPv4(198, 18, byte(i), 1)) || n.IP.Mask(net.CIDRMask(24, 32)).Equal(net.IPv4(198, 18, byte(i), 0)) {
				taken[i] = true
			}
		}
	}
	for i := range 256 {
		if !taken[i] {
			return i, nil
		}
	}
	return 0, errors.New("all of 198.18.0.0/16 is in use on this machine: take a cluster down")
}

// namespacesIntact tells whether the node's surroundings still are what its processes were started in.
func (c *Cluster) namespacesIntact() (bool, error) {
	running, err := c.Running()
	if err != nil {
		return false, err
	}
	return running[namespaceHolder] != 0 && linkExists(LinkName(c.dir)) && disk.Exists(c.netns()), nil
}

func linkExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// stopNode ends kubelet and pods before all else: a kubelet would start again what ends.
func stopNode(ctx context.Context, dir, name string) error {
	id := nodeID(dir, name)
	// Unused by a simulated cluster, and invisible to a user without root.
	if dirs, err := host.Groups(id); err != nil || len(dirs) == 0 {
		return err
	}
	isKubelet := func(component string) bool { return component == "kubelet" }
	if err := process.End(ctx, process.Marked(dir, isKubelet), 0); err != nil {
		return err
	}
	return process.End(ctx, host.Members(id, true), 0)
}

// removeNode removes what a node has outside of its state directory once its marked processes have ended.
func removeNode(ctx context.Context, dir, name string) error {
	id := nodeID(dir, name)
	if err := process.End(ctx, host.Members(id, false), 0); err != nil {
		return err
	}
	if err := host.UnmountBelow(dir); err != nil {
		return err
	}
	netns := filepath.Join(netnsDir, id)
	if disk.Exists(netns) {
		if err := host.UnmountBelow(netns); err != nil {
			return err
		}
		err := os.Remove(netns)
		if errors.Is(err, syscall.EBUSY) {
			err = removeHidden(ctx, netns)
		}
		if err != nil {
			return err
		}
		// Gone if this was the last one; "ip netns" makes it again.
		_ = os.Remove(netnsDir)
	}
	if link := LinkName(dir); linkExists(link) {
		// The kernel removes it with the namespace of its other end, at a time of its own.
		if err := host.Run(ctx, "ip link delete "+link); err != nil && linkExists(link) {
			return err
		}
	}
	return host.RemoveGroups(ctx, id)
}

// removeHidden removes the name of a network namespace on which something is mounted that cannot be seen: another process
// has mounted the directory over itself since, as "ip netns add" does, and the mount is the one below. It must not be
// unmounted from above, for others may have mounted their own there. In a mount namespace of its own a program can take
// away all that is above, and the kernel lets go of the mounts elsewhere when the file is removed.
func removeHidden(ctx context.Context, netns string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, commandUnname, netns)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove %s: %w: %s", netns, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// runUnname is the other half of removeHidden.
func runUnname(args []string) error {
	if len(args) != 1 || filepath.Dir(args[0]) != netnsDir {
		return errors.New("this command is for the runner itself")
	}
	if err := mountAt("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for {
		all, err := host.Mounts()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(m host.Mount) bool { return m.Point == netnsDir || m.Point == args[0] }) {
			return os.Remove(args[0])
		}
		// Both, since either may be the one that is seen; what is not mounted there is no error.
		above := syscall.Unmount(netnsDir, syscall.MNT_DETACH)
		below := syscall.Unmount(args[0], syscall.MNT_DETACH)
		if above != nil && below != nil {
			return fmt.Errorf("unmount %s and %s: %w", netnsDir, args[0], errors.Join(above, below))
		}
	}
}

// nodeLeftovers lists what there is of a node, one line each.
func nodeLeftovers(dir, name string) ([]string, error) {
	id := nodeID(dir, name)
	var found []string
	pids, err := host.Members(id, false)()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		found = append(found, fmt.Sprintf("process %d in control group %s", pid, id))
	}
	dirs, err := host.Groups(id)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		found = append(found, "control group "+dir)
	}
	netns := filepath.Join(netnsDir, id)
	if disk.Exists(netns) {
		found = append(found, "network namespace "+netns)
	}
	if link := LinkName(dir); linkExists(link) {
		found = append(found, "network link "+link)
	}
	all, err := host.Mounts()
	if err != nil {
		return nil, err
	}
	for _, point := range host.MountsBelow(all, dir) {
		found = append(found, "mount "+point)
	}
	return found, nil
}
