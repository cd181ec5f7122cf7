package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/process"
)

// ErrUnhealthy makes the exit code 1 where everything has been said already.
var ErrUnhealthy = errors.New("not healthy")

// components lists by name what must run.
func (c *Cluster) components() []string {
	return append([]string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}, c.profile().components...)
}

// problems looks at a cluster and lists what is wrong with it, one line each.
func (c *Cluster) problems(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	var problems []string
	running, err := c.Running()
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range c.components() {
		if running[name] == 0 {
			problems = append(problems, name+" does not run")
		}
	}
	api, err := c.client()
	if err != nil {
		return append(problems, err.Error())
	}
	if err := api.Healthy(ctx); err != nil {
		return append(problems, "API server: "+err.Error())
	}
	if ready, all, err := api.Nodes(ctx); err != nil {
		problems = append(problems, err.Error())
	} else if want := max(c.Nodes, 1); ready < want {
		problems = append(problems, fmt.Sprintf("%d of %d nodes are Ready", ready, max(all, want)))
	}
	if c.hasNode() {
		if err := api.DeploymentReady(ctx, "kube-system", "coredns"); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, check := range c.profile().checks {
		if err := check(ctx, c, api); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if c.OptionalAPIs {
		missing, err := c.missingDefinitions(ctx, api)
		if err != nil {
			problems = append(problems, err.Error())
		} else if len(missing) > 0 {
			problems = append(problems, fmt.Sprintf("%d API definitions are not installed, among them %s", len(missing), missing[0]))
		}
	}
	return problems
}

// Status prints the processes and problems of a cluster. The error is ErrUnhealthy if there are problems.
func Status(ctx context.Context, p disk.Places, name string, out io.Writer) error {
	c, err := Open(p, name)
	if err != nil {
		return err
	}
	running, err := c.Running()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "cluster     %s\nprofile     %s\nAPI server  %s\nkubeconfig  %s\nstate       %s\n", c.Name, c.Profile, c.apiURL(), c.Kubeconfig(), c.dir)
	if c.hasNode() {
		fmt.Fprintf(out, "node        %s, NodePorts on %s, network namespace %s\nregistry    %s\n", nodeName, c.nodeIP(), c.id(), c.registry())
	}
	fmt.Fprintln(out)

	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPROCESS\tLOG")
	for _, name := range c.components() {
		pid := "-"
		if running[name] != 0 {
			pid = strconv.Itoa(running[name])
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", name, pid, c.logFile(name))
	}
	if err := table.Flush(); err != nil {
		return err
	}

	problems := c.problems(ctx)
	if len(problems) == 0 {
		_, err := fmt.Fprintln(out, "\nhealthy")
		return err
	}
	fmt.Fprintf(out, "\nnot healthy:\n  %s\nup repairs it\n", strings.Join(problems, "\n  "))
	return ErrUnhealthy
}

// List prints all clusters of this user.
func List(p disk.Places, out io.Writer) error {
	all, err := p.Names()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tPROFILE\tPROCESSES\tCREATED")
	for _, name := range all {
		live, err := process.Of(p.ClusterDir(name))
		if err != nil {
			return err
		}
		c, err := Open(p, name)
		if err != nil {
			// Nothing was written yet, or nothing can be read: down removes it all the same.
			fmt.Fprintf(table, "%s\t(incomplete)\t%d\t\n", name, len(live))
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", name, c.Profile, len(live), c.Created.Local().Format(time.DateTime))
	}
	return table.Flush()
}

// PrintKubeconfig prints the path of the administrator's.
func PrintKubeconfig(p disk.Places, name string, out io.Writer) error {
	c, err := Open(p, name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, c.Kubeconfig())
	return err
}

// PrintRegistry prints what a program on this machine needs to pull from the registry of a node.
func PrintRegistry(p disk.Places, name string, out io.Writer) error {
	c, err := Open(p, name)
	if err != nil {
		return err
	}
	if !c.hasNode() {
		return fmt.Errorf("cluster %s is simulated and has no registry", c.Name)
	}
	_, err = fmt.Fprintf(out, "REGISTRY=%s\nSSL_CERT_FILE=%s\n", c.registry(), c.certificate(clusterAuthority))
	return err
}

// Kubectl becomes the cluster's own kubectl.
func Kubectl(p disk.Places, name string, args []string) error {
	c, err := Open(p, name)
	if err != nil {
		return err
	}
	// Of two entries of one name, a Go program takes the first.
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "KUBECONFIG=") })
	env = append(env, "KUBECONFIG="+c.Kubeconfig())
	if err := syscall.Exec(c.kubectl(), append([]string{"kubectl"}, args...), env); err != nil {
		return fmt.Errorf("%s: %w: up builds it again", c.kubectl(), err)
	}
	return nil
}

// Logs prints the log of a component, or the names of all log files when none is named.
func Logs(p disk.Places, name string, args []string, out io.Writer) error {
	c, err := Open(p, name)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(c.path("logs", "*.log"))
	if err != nil {
		return err
	}
	if len(args) == 0 {
		for _, file := range files {
			fmt.Fprintln(out, file)
		}
		return nil
	}
	f, err := os.Open(c.logFile(filepath.Base(args[0])))
	if err != nil {
		var known []string
		for _, file := range files {
			known = append(known, strings.TrimSuffix(filepath.Base(file), ".log"))
		}
		return fmt.Errorf("no log of %q: there are %s", args[0], strings.Join(known, ", "))
	}
	defer f.Close()
	_, err = io.Copy(out, f)
	return err
}
