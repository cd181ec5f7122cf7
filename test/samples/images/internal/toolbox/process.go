package toolbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// printenv [NAME...]: prints the values of the variables, or every variable as NAME=VALUE in order.
func printenv(_ context.Context, streams Streams, names []string) error {
	if len(names) == 0 {
		for _, variable := range slices.Sorted(slices.Values(os.Environ())) {
			fmt.Fprintln(streams.Out, variable)
		}
		return nil
	}
	for _, name := range names {
		value, set := os.LookupEnv(name)
		if !set {
			return fmt.Errorf("%s is not set", name)
		}
		fmt.Fprintln(streams.Out, value)
	}
	return nil
}

// id: prints user, group and further groups, as numbers.
func id(_ context.Context, streams Streams, _ []string) error {
	groups, err := os.Getgroups()
	if err != nil {
		return fmt.Errorf("read the groups: %w", err)
	}
	slices.Sort(groups)
	words := make([]string, len(groups))
	for i, group := range groups {
		words[i] = fmt.Sprint(group)
	}
	_, err = fmt.Fprintf(streams.Out, "uid=%d gid=%d groups=%s\n", os.Getuid(), os.Getgid(), strings.Join(words, ","))
	return err
}

// run [-user UID] PATH [ARG...]: runs a program with the streams of this one. With -user it runs it
// with that number as user and group and no further group, which takes CAP_SETUID and CAP_SETGID.
func run(ctx context.Context, streams Streams, args []string) error {
	flags := newFlagSet()
	user := flags.Uint("user", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("want [-user UID] PATH [ARG...]")
	}
	command := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...)
	command.Stdin, command.Stdout, command.Stderr = streams.In, streams.Out, streams.Err
	if *user != 0 {
		command.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(*user), Gid: uint32(*user)},
		}
	}
	return command.Run()
}
