// Package broker runs a real Apache Kafka for tests: one process of Java on this machine, or in
// a network namespace of it, that can be paused, killed, started again, and lose its disk.
// It ends with the process of the tests.
//
//	kafka, err := broker.Start(ctx, broker.Options{Dir: t.TempDir(), Topic: "challenge-status"})
//	defer kafka.Stop()
//	log := kafka.Follow(ctx)
package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"text/template"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/cluster/process"
	"github.com/bergctf/berg-operator/test/cluster/progress"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	probe = time.Second
	pause = 50 * time.Millisecond

	// clusterID is any valid ID.
	clusterID = "YmVyZy1vcGVyYXRvci10Zw"
	// firstPort is the first of five ports in a network namespace, where no other process listens.
	firstPort = 9091
	// Elsewhere they are from this range.
	lowestPort, highestPort = 20000, 30000
	// User is who may log in, with the content of PasswordFile. A client certificate's
	// user is CN=operator.
	User = "operator"
)

var (
	// startLimit is how long a broker may take to answer: four seconds where nothing else runs.
	startLimit = limits.Scaled(90 * time.Second)
	// stopLimit is how long it may take to end when it is asked to.
	stopLimit = limits.Scaled(20 * time.Second)
)

//go:embed server.properties
var properties string

// Options are what brokers differ in.
type Options struct {
	// Dir has all files of the broker, and no others.
	Dir string
	// Topic is created at the start. Empty: none.
	Topic string
	// Partitions of the topic. Default: 3.
	Partitions int32
	// Address is where it listens, also in its certificate. Default: 127.0.0.1.
	Address string
	// Namespace is the network namespace that it runs in, by the name that ip netns knows.
	// That needs root. Default: that of this process.
	Namespace string
	// CreateTopics lets it create topics that clients ask for.
	CreateTopics bool
	// Output receives the output of the programs. Default: none.
	Output io.Writer
}

// Broker is one that was started. Its methods are for one goroutine at a time.
type Broker struct {
	// Addresses of its listeners: without anything; with TLS and a login; with a login alone;
	// with TLS and a client certificate.
	Plaintext, Login, PlainLogin, Certificates string
	// Files of a client: the authority, a certificate with its key, and the password of User.
	CAFile, CertificateFile, KeyFile, PasswordFile string

	opts       Options
	libs       string
	password   string
	controller int
	running    *running
}

// running is one life of the process.
type running struct {
	process *os.Process
	ended   chan struct{} // closed when it is gone
}

// Start runs a broker, and returns when it answers and has the topic.
func Start(ctx context.Context, opts Options) (*Broker, error) {
	if opts.Address == "" {
		opts.Address = "127.0.0.1"
	}
	if opts.Partitions == 0 {
		opts.Partitions = 3
	}
	if opts.Output == nil {
		opts.Output = io.Discard
	}
	places, err := disk.Find()
	if err != nil {
		return nil, err
	}
	b := &Broker{opts: opts}
	if b.libs, err = build.One(ctx, places, build.Kafka, progress.New(opts.Output)); err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		return nil, fmt.Errorf("prepare a broker: %w", err)
	}
	if err := b.format(ctx); err != nil {
		return nil, err
	}
	if err := b.LoseDisk(); err != nil {
		return nil, err
	}
	if err := b.Restart(ctx); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

func (b *Broker) path(elem ...string) string {
	return filepath.Join(append([]string{b.opts.Dir}, elem...)...)
}

// prepare writes what the process reads.
func (b *Broker) prepare() error {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	b.password = hex.EncodeToString(secret)
	b.CAFile, b.CertificateFile, b.KeyFile, b.PasswordFile = b.path("tls", "ca.crt"), b.path("tls", "client.crt"), b.path("tls", "client.key"), b.path("password")
	if err := os.MkdirAll(b.path("tls"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(b.PasswordFile, []byte(b.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := b.certify(); err != nil {
		return err
	}
	ports, err := b.freePorts()
	if err != nil {
		return err
	}
	b.controller = ports[0]
	at := func(i int) string { return net.JoinHostPort(b.opts.Address, strconv.Itoa(ports[i])) }
	b.Plaintext, b.Login, b.PlainLogin, b.Certificates = at(1), at(2), at(3), at(4)

	parsed, err := template.New("").Option("missingkey=error").Parse(properties)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, map[string]any{
		"Controller": b.controller, "Plaintext": b.Plaintext, "Login": b.Login, "PlainLogin": b.PlainLogin, "Certificates": b.Certificates,
		"MakeTopics": b.opts.CreateTopics, "Logins": []string{"sasl_ssl", "sasl_plaintext"}, "User": User, "Password": b.password,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(b.path("server.properties"), text.Bytes(), 0o600)
}

// certify issues the broker's certificate and a client's.
func (b *Broker) certify() error {
	authority, err := pki.NewAuthority("broker")
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.CAFile, pki.Encode("CERTIFICATE", authority.Certificate.Raw), 0o600); err != nil {
		return err
	}
	issue := func(id pki.Identity) (certificate, key []byte, err error) {
		raw, private, err := authority.Issue(id)
		if err != nil {
			return nil, nil, err
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(private) // the only form that Kafka reads
		return pki.Encode("CERTIFICATE", raw), pki.Encode("PRIVATE KEY", pkcs8), err
	}
	certificate, key, err := issue(pki.Identity{User: "broker", Hosts: []string{b.opts.Address, "localhost"}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.path("tls", "broker.pem"), append(key, certificate...), 0o600); err != nil {
		return err
	}
	if certificate, key, err = issue(pki.Identity{User: User}); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(b.CertificateFile, certificate, 0o600), os.WriteFile(b.KeyFile, key, 0o600))
}

// freePorts returns five unused ports: the controller's and one for each listener. They are below those that the kernel
// gives to outgoing connections, so that no connection takes one before the broker starts or while it is stopped.
func (b *Broker) freePorts() ([]int, error) {
	var ports []int
	if b.opts.Namespace != "" {
		for i := range 5 {
			ports = append(ports, firstPort+i)
		}
		return ports, nil
	}
	const tries = 1000
	for range tries {
		port := lowestPort + mathrand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", net.JoinHostPort(b.opts.Address, strconv.Itoa(port))) //nolint:noctx // of this machine
		if err != nil {
			continue
		}
		defer func() { _ = listener.Close() }() // when all five are known
		if ports = append(ports, port); len(ports) == 5 {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("%s has no five free ports from %d to %d", b.opts.Address, lowestPort, highestPort)
}

// format creates an empty disk with the users, and keeps a copy.
func (b *Broker) format(ctx context.Context) error {
	args := []string{"-Xmx64m", "kafka.tools.StorageTool", "format", "--cluster-id", clusterID, "--config", "server.properties", "--standalone"}
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, User, b.password))
	}
	cmd := exec.CommandContext(ctx, host.Find("java"), b.java(args)...)
	cmd.Dir = b.opts.Dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format the broker's disk: %w: %s", err, output)
	}
	return os.Rename(b.path("data"), b.path("golden"))
}

// java returns the arguments of a program of Kafka: one for the JVM, the class, and its own.
func (b *Broker) java(args []string) []string {
	return append([]string{
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(b.libs, "*"),
	}, args...)
}

// Restart starts the process, which must not run, on the disk that it has. It returns when the
// broker answers and has the topic.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.launch(); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := b.answers(ctx); err != nil {
		return fmt.Errorf("the broker does not answer: %w\nthe end of its log:\n%s", err, process.Tail(b.path("log"), 20))
	}
	return nil
}

func (b *Broker) launch() error {
	output, err := os.OpenFile(b.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	program, args := host.Find("java"), b.java([]string{
		"-Xms64m", "-Xmx96m", "-XX:MaxMetaspaceSize=96m", "-XX:ReservedCodeCacheSize=48m", "-XX:MaxDirectMemorySize=64m", "-Xss512k",
		"kafka.Kafka", "server.properties",
	})
	if b.opts.Namespace != "" {
		// It executes the program in the same process.
		program, args = host.Find("nsenter"), append([]string{"--net=/run/netns/" + b.opts.Namespace, "--", program}, args...)
	}
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives the call
	cmd.Dir = b.opts.Dir
	cmd.Stdout, cmd.Stderr = output, output
	// In a group of its own: a signal that ends a test must not end its broker.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	now := &running{ended: make(chan struct{})}
	go func() {
		// The signal comes when the thread ends that has started the process, not when all do.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		now.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // 143 after a SIGTERM
			close(now.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	b.running = now
	return nil
}

// answers waits until the broker has registered itself, and has the topic.
func (b *Broker) answers(ctx context.Context) error {
	return b.as(func(admin *kadm.Client) error {
		for {
			err := func() error {
				ctx, cancel := context.WithTimeout(ctx, probe)
				defer cancel()
				found, err := admin.BrokerMetadata(ctx)
				if err == nil && len(found.Brokers) == 0 {
					err = errors.New("there is none yet")
				}
				return err
			}()
			if err == nil {
				break
			}
			select {
			case <-b.running.ended:
				return errors.New("it has ended")
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(pause):
			}
		}
		if b.opts.Topic == "" {
			return nil
		}
		topics, err := admin.ListTopics(ctx, b.opts.Topic)
		if err != nil || topics.Has(b.opts.Topic) {
			return err
		}
		_, err = admin.CreateTopic(ctx, b.opts.Partitions, 1, nil, b.opts.Topic)
		return err
	})
}

// as calls work with a client that may do everything.
func (b *Broker) as(work func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Plaintext), kgo.DialTimeout(probe), kgo.MetadataMinAge(pause))
	if err != nil {
		return err
	}
	defer client.Close()
	return work(kadm.NewClient(client))
}

// Admin calls work with a client of administrators: topics, and rules about them.
func (b *Broker) Admin(work func(*kadm.Client) error) error { return b.as(work) }

// Pause stops the process: connections stay open and get no answer. When it returns, no thread of the broker answers any more.
func (b *Broker) Pause() error { return launch.Pause(b.running.process) }

// Resume continues it.
func (b *Broker) Resume() error { return b.running.process.Signal(syscall.SIGCONT) }

// Kill ends the process as a loss of power does.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL) }

// Stop ends the process in order, also one that is paused. A broker that does not run is no
// error.
func (b *Broker) Stop() error {
	if b.running == nil {
		return nil
	}
	_ = b.running.process.Signal(syscall.SIGCONT)
	if err := b.end(syscall.SIGTERM); err != nil {
		return errors.Join(err, b.end(syscall.SIGKILL))
	}
	return nil
}

func (b *Broker) end(signal syscall.Signal) error {
	if err := b.running.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-b.running.ended:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("the broker does not end within %s of %s", stopLimit, signal)
	}
}

// LoseDisk gives the broker, which must not run, an empty disk.
func (b *Broker) LoseDisk() error {
	if err := os.RemoveAll(b.path("data")); err != nil {
		return err
	}
	return disk.CopyTree(b.path("data"), b.path("golden"))
}
