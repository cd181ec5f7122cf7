package dashboards

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/scrape"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

const (
	// file is where the recording goes, an absolute path.
	file = "DASHBOARDS_RECORDING"
	// minutes is how long it takes. The widest window of a query is 15 minutes.
	minutes = "DASHBOARDS_MINUTES"
	// interval is between two scrapes.
	interval = 5 * time.Second
	// root is the repository, seen from this package.
	root = "../../.."
)

var k8s client.WithWatch

func TestRecord(t *testing.T) {
	if os.Getenv(file) == "" {
		t.Skip(file + " is not set: make record-dashboards sets it")
	}
	apiserver.Run(t, "A day of all families")
}

var _ = Describe("A day of all families", func() {
	It("is recorded", func(ctx context.Context) {
		length, err := strconv.Atoi(os.Getenv(minutes))
		Expect(err).NotTo(HaveOccurred(), minutes)
		k8s, _ = apiserver.Begin(ctx)
		for _, folder := range []string{"config/berg/check", "config/berg/prepull", "config/berg/record", "config/tunnel/host"} {
			Expect(installed.Folder(ctx, k8s, folder, "dashboards")).To(Succeed())
		}
		folder := GinkgoT().TempDir()
		platform, stop := hexactftest.NewPlatform()
		DeferCleanup(stop)
		proxy := tunneltest.Program(ctx, folder)
		_, stop = tunneltest.NewKubelet(k8s, proxy, folder)
		DeferCleanup(stop)
		prepare(ctx)

		api := startAPI(ctx, folder)
		network := isolate(ctx)
		DeferCleanup(network)
		operator := startOperator(ctx, folder, proxy, platform.Brokers)

		today := &day{length: time.Duration(length) * time.Minute, begin: time.Now()}
		today.challenges(ctx)
		today.platform(api)
		today.environments()
		today.hexactf(ctx, platform)
		today.tunnels(ctx)
		today.kibaship()
		recording := &scrape.Recording{Begin: today.begin, Interval: interval, Keep: shown()}
		today.record(ctx, recording, operator, api)
		today.end()

		out, err := os.Create(os.Getenv(file))
		Expect(err).NotTo(HaveOccurred())
		_, err = recording.WriteTo(out)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Close()).To(Succeed())
	}, SpecTimeout(2*time.Hour))
})

// shown tells whether a dashboard shows series of a name.
func shown() func(name string) bool {
	GinkgoHelper()
	names := map[string]bool{}
	for _, pattern := range []string{"config/grafana/*.json", "config/*/grafana/*.json"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			text, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			for _, name := range regexp.MustCompile(`[a-z_]+`).FindAllString(string(text), -1) {
				names[name] = true
			}
		}
	}
	return func(name string) bool { return names[name] }
}

// startOperator starts the operator as the Deployment does, with all families, until the spec ends.
func startOperator(ctx context.Context, folder, proxy, brokers string) *launch.Operator {
	GinkgoHelper()
	build := &launch.Build{}
	program, err := build.Program(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(build.Remove)
	account, err := launch.Account(ctx, apiserver.Config, installed.Namespace, installed.Account)
	Expect(err).NotTo(HaveOccurred())
	processes := filepath.Join(folder, "processes")
	Expect(os.Mkdir(processes, 0o700)).To(Succeed())
	settings := launch.Settings{
		Program: program, Namespace: installed.Namespace, Kubeconfig: filepath.Join(folder, "kubeconfig"), Log: filepath.Join(folder, "log"),
		Env: []string{
			"METRICS_SECURE=false", "TMPDIR=" + processes,
			"CHALLENGE_MAX_INSTANCES=30", "CHALLENGE_START_DEADLINE=90s", "CHALLENGE_CONNECT_TIMEOUT=0", "CHECK_CONCURRENCY=2", "ISOLATION_CHECK=startup",
			"IMAGE_PREPULL_LEAD=30m", "RECORD_RETENTION=4m",
			"KAFKA_BROKERS=" + brokers, "KAFKA_SEND_TIMEOUT=1s",
			"TUNNEL_BACKEND=LocalProcess", "TUNNEL_PUBLISH=HostPort", "TUNNEL_HOST_PORTS=28000-28511", "TUNNEL_BINARY=" + proxy, "TUNNEL_IMAGE=example.com/berg-tunnel:1",
			"BUILD_REGISTRY=registry.example.org/kibaship", "BUILD_REGISTRY_SECRET=" + registrySecret, "BUILD_PUSH_IMAGE=example.org/berg-operator:v1",
			"BUILD_GIT_IMAGE=example.org/git:v1", "BUILD_IMAGE=example.org/kaniko:v1", "GIT_PROVIDER_URLS=github.com=https://git.example.org",
		},
	}
	Expect(launch.WriteKubeconfig(settings.Kubeconfig, account)).To(Succeed())
	operator, err := launch.New(settings)
	Expect(err).NotTo(HaveOccurred())
	process, err := operator.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		process.Kill()
		if CurrentSpecReport().Failed() {
			AddReportEntry("log of the operator", operator.Tail())
		}
	})
	Expect(process.Ready(ctx)).To(Succeed())
	return operator
}

// day is what happens while it is recorded. Times are parts of its length, so that a short one shows the same.
type day struct {
	length time.Duration
	begin  time.Time
	ended  sync.WaitGroup
}

// hour is a time of a day that has 24 of them.
func (d *day) hour() float64 { return 24 * float64(time.Since(d.begin)) / float64(d.length) }

// between says whether the time is from one hour until another.
func (d *day) between(from, to float64) bool { return d.hour() >= from && d.hour() < to }

// every does something at intervals until the day is over, for the n-th time, from 0. A failure ends the spec.
func (d *day) every(interval time.Duration, do func(ctx context.Context, n int)) {
	d.ended.Go(func() {
		defer GinkgoRecover()
		ctx, cancel := context.WithDeadline(context.Background(), d.begin.Add(d.length))
		defer cancel()
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for n := 0; ; n++ {
			do(context.WithoutCancel(ctx), n)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

// later deletes an object when a time has passed, or the day.
func (d *day) later(after time.Duration, o client.Object) {
	d.ended.Go(func() {
		defer GinkgoRecover()
		timer := time.NewTimer(min(after, time.Until(d.begin.Add(d.length))))
		defer timer.Stop()
		<-timer.C
		Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), o))).To(Succeed())
	})
}

// end waits until nothing happens any more.
func (d *day) end() { d.ended.Wait() }

// record scrapes as a Prometheus with the ServiceMonitors of config does, until the day is over.
func (d *day) record(ctx context.Context, r *scrape.Recording, operator *launch.Operator, api *platformAPI) {
	GinkgoHelper()
	targets := map[string]model.LabelSet{
		"http://" + operator.Metrics + "/metrics": {
			"job": "berg-operator-controller-manager-metrics", "instance": "10.0.0.7:8443", "pod": "berg-operator-controller-manager-0",
		},
		"http://" + api.metrics + "/metrics": {"job": "berg-api", "instance": "10.0.0.8:8081", "pod": "berg-api-0"},
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for time.Since(d.begin) < d.length {
		r.Next()
		for url, labels := range targets {
			up := model.SampleValue(1)
			metrics, err := scrape.Fetch(ctx, url, "")
			if err != nil {
				GinkgoWriter.Println(err)
				up = 0
			}
			r.Add(append(metrics, &model.Sample{Metric: model.Metric{model.MetricNameLabel: "up"}, Value: up}), labels)
		}
		select {
		case <-ctx.Done():
			Fail("the day was broken off")
		case <-ticker.C:
		}
	}
}
