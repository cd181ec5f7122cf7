// Recording runs a program in a pseudo-terminal and draws its output as an animated SVG:
//
//	go run ./test/samples/recording --output try.svg --columns 90 --until 'Press Ctrl-C' -- kubectl berg try web
//
// When the text of --until appears, it types Ctrl-C two seconds later.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
)

func main() {
	output := flag.String("output", "", "file to write")
	columns := flag.Int("columns", 90, "number of columns of the terminal")
	until := flag.String("until", "", "text after which Ctrl-C is typed")
	title := flag.String("title", "", "command to show as typed (default: the one that runs)")
	flag.Parse()
	if err := run(*output, *columns, *until, *title, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

const (
	// maxRuntime limits the program. readingTime is the time from the text of --until to Ctrl-C.
	maxRuntime  = 2 * time.Minute
	readingTime = 2 * time.Second
)

func run(output string, columns int, until, title string, command []string) error {
	if output == "" || len(command) == 0 || columns < 20 || columns > 400 {
		return errors.New("--output and a command are needed, and --columns from 20 to 400")
	}
	if title == "" {
		title = strings.Join(command, " ")
	}
	c := exec.Command(command[0], command[1:]...)
	c.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	file, err := pty.StartWithSize(c, &pty.Winsize{Rows: 40, Cols: uint16(columns)})
	if err != nil {
		return err
	}
	defer file.Close()
	s := newScreen()
	s.write([]byte("$ " + title + "\r\n"))
	frames := []frame{{0, s.draw()}}
	began := time.Now()
	guard := time.AfterFunc(maxRuntime, func() { _ = c.Process.Kill() })
	defer guard.Stop()
	buffer := make([]byte, 4096)
	var seen strings.Builder
	typed := until == ""
	for {
		n, err := file.Read(buffer)
		s.write(buffer[:n])
		seen.Write(buffer[:n])
		frames = append(frames, frame{time.Since(began), s.draw()})
		if !typed && strings.Contains(seen.String(), until) {
			typed = true
			time.AfterFunc(readingTime, func() { _, _ = file.WriteString("\x03") })
		}
		if err != nil { // EIO after the end of the program
			break
		}
	}
	var exit *exec.ExitError
	if err := c.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return os.WriteFile(output, []byte(svg(thin(frames), columns)), 0o644)
}
