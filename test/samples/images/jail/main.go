// Command jail is a challenge that locks each player into a sandbox of its own, as many pwn challenges do: one service, two
// jails.
//
//	JAIL=bubblewrap   Debian's bubblewrap
//	JAIL=own          this program, which does what nsjail does: new namespaces, a root of its own, a fresh /proc
//	JAIL_USER=1000    the user who makes the jail, who has no capability then. Default: root
//
// Players connect to port 1337 and write a line: report, flag, or a command of the toolbox with its arguments. It is run in the jail,
// and a line "end" follows. The flag is in /flag.txt.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

const (
	port           = "1337"
	maxConnections = 16
	self           = "/usr/bin/jail"
	bubblewrap     = "/usr/bin/bwrap"
	flagFile       = "/flag.txt"
	hostname       = "jail"
)

// Report is what a process sees of where it is.
type Report struct {
	UID       int
	PID       int
	Processes int
	Hostname  string
	// Interfaces of the network.
	Interfaces []string
	// Capabilities are those in effect, as the kernel writes them.
	Capabilities string
	// Namespaces are the identities of all, by kind.
	Namespaces map[string]string
	// Folders are what the root has.
	Folders []string
}

func main() {
	steps := map[string]func() error{
		"start": start, "inside": inside,
		"player": func() error { return play(os.Stdin, os.Stdout) },
		"report": func() error { return writeReport(os.Stdout) },
	}
	if len(os.Args) == 2 {
		if step, known := steps[os.Args[1]]; known {
			if err := step(); err != nil {
				fmt.Fprintf(os.Stderr, "jail %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	toolbox.Main(serve)
}

func serve(ctx context.Context) error {
	return toolbox.ServeTCP(ctx, toolbox.Address(port), maxConnections, func(ctx context.Context, connection net.Conn) {
		if err := admit(ctx, connection.(*net.TCPConn)); err != nil {
			fmt.Fprintf(os.Stderr, "jail: %v\n", err)
		}
	})
}

// admit locks the player of a connection into a jail.
func admit(ctx context.Context, connection *net.TCPConn) error {
	player, err := connection.File()
	if err != nil {
		return err
	}
	defer player.Close()
	command := exec.CommandContext(ctx, self, "start")
	command.Stdin, command.Stdout, command.Stderr = player, player, os.Stderr
	if name := os.Getenv("JAIL_USER"); name != "" {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return fmt.Errorf("JAIL_USER: %w", err)
		}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	}
	return command.Run()
}

// start makes the jail, as the user who was chosen.
func start() error {
	switch kind := os.Getenv("JAIL"); kind {
	case "bubblewrap":
		return syscall.Exec(bubblewrap, []string{
			"bwrap", "--unshare-all", "--die-with-parent", "--hostname", hostname, "--uid", "0", "--gid", "0",
			"--ro-bind", "/usr", "/usr", "--ro-bind", flagFile, flagFile, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
			"--", self, "player",
		}, os.Environ())
	case "own":
		command := exec.Command(self, "inside")
		command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
		command.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
				syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		return command.Run()
	default:
		return fmt.Errorf("JAIL=%s: want bubblewrap or own", kind)
	}
}

// inside runs as the first process of the namespaces. It gives the jail a root of its own, then becomes the player's program.
func inside() error {
	const root = "/tmp"
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("jail", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a root: %w", err)
	}
	for _, folder := range []string{"usr", "proc", "tmp", "old"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, flagFile), nil, 0o644); err != nil {
		return err
	}
	for _, path := range []string{"/usr", flagFile} {
		if err := unix.Mount(path, filepath.Join(root, path), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.PivotRoot(root, filepath.Join(root, "old")); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Remove("/old"); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("name the host: %w", err)
	}
	return syscall.Exec(self, []string{"jail", "player"}, os.Environ())
}

// play answers a player, line by line.
func play(in io.Reader, out io.Writer) error {
	commands := toolbox.Commands()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		var err error
		switch command, known := commands[words[0]]; {
		case words[0] == "report":
			err = writeReport(out)
		case words[0] == "flag":
			err = commands["cat"](context.Background(), toolbox.Streams{Out: out, Err: out}, []string{flagFile})
		case known:
			err = command(context.Background(), toolbox.Streams{In: strings.NewReader(""), Out: out, Err: out}, words[1:])
		default:
			err = errors.New("want report, flag, or a command of the toolbox")
		}
		if err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
		}
		if _, err := fmt.Fprintln(out, "end"); err != nil {
			return err
		}
	}
	return nil
}

func writeReport(out io.Writer) error {
	r, err := report()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

func report() (Report, error) {
	r := Report{UID: os.Getuid(), PID: os.Getpid(), Namespaces: map[string]string{}}
	var err error
	if r.Hostname, err = os.Hostname(); err != nil {
		return r, err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return r, err
	}
	for _, i := range interfaces {
		r.Interfaces = append(r.Interfaces, i.Name)
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return r, err
	}
	for _, entry := range processes {
		if _, err := strconv.Atoi(entry.Name()); err == nil {
			r.Processes++
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "CapEff:"); found {
			r.Capabilities = strings.TrimSpace(text)
		}
	}
	kinds, err := os.ReadDir("/proc/self/ns")
	if err != nil {
		return r, err
	}
	for _, kind := range kinds {
		if r.Namespaces[kind.Name()], err = os.Readlink("/proc/self/ns/" + kind.Name()); err != nil {
			return r, err
		}
	}
	folders, err := os.ReadDir("/")
	if err != nil {
		return r, err
	}
	for _, folder := range folders {
		r.Folders = append(r.Folders, folder.Name())
	}
	slices.Sort(r.Folders)
	return r, nil
}
