package command

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

type planOptions struct {
	files             []string
	players           int
	playing           string
	start, lifetime   time.Duration
	duration          time.Duration
	nodeCPU, nodeMem  string
	nodeDisk          string
	nodePods          int
	overhead          int
	price, starts     float64
	currency          string
	nodePorts         int
	etcd              string
	weights           []string
	allNamespaces     bool
	operatorNamespace string
	settings          []string
}

func (r *root) plan() *cobra.Command {
	var o planOptions
	c := &cobra.Command{
		Use:   "plan",
		Short: "Calculate what an event needs: nodes, memory, node ports, requests, cost, and the first limit",
		Long: `Calculate what an event needs. Challenges come from files (-f; folders and - also work), which needs no
cluster, or from the cluster together with the operator's settings. An owner has one instance at a time,
so there are as many instances as owners who play at the same time. Exit code 4: a limit is exceeded,
or a Challenge in a file cannot run (see kubectl berg lint).

The size of a node is its allocatable size. By default it is that of the cluster's smallest node, or 16
CPUs and 64 GiB if nodes cannot be read.`,
		Example: `  kubectl berg plan --players 500 --playing 60% -n berg
  kubectl berg plan -f challenges/ --players 2000 --start 5m --node-cpu 8 --node-memory 32Gi --price 0.40 --duration 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilCancelled(cmd.Context(), func() error { return r.planFor(cmd.Context(), o) })
		},
	}
	f := c.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "files or folders with Challenges, - for standard input")
	f.IntVar(&o.players, "players", 0, "number of players or teams")
	f.StringVar(&o.playing, "playing", "100%", "how many of them have an instance at peak, as in 60% or 300")
	f.DurationVar(&o.start, "start", 5*time.Minute, "period in which these instances start")
	f.DurationVar(&o.lifetime, "lifetime", 0, "lifetime of an instance (default: the operator's CHALLENGE_INSTANCE_TIMEOUT)")
	f.DurationVar(&o.duration, "duration", 24*time.Hour, "duration of the event")
	f.StringVar(&o.nodeCPU, "node-cpu", "", "CPUs of a node")
	f.StringVar(&o.nodeMem, "node-memory", "", "memory of a node, as in 64Gi")
	f.StringVar(&o.nodeDisk, "node-disk", "", "disk of a node without images, as in 50Gi")
	f.IntVar(&o.nodePods, "node-pods", 0, "maximum number of pods of a node (default 110)")
	f.IntVar(&o.overhead, "node-overhead", -1, "number of other pods on every node (default: as many as now)")
	f.Float64Var(&o.price, "price", 0, "price of a node per hour")
	f.StringVar(&o.currency, "currency", "", "currency of the price, as in EUR")
	f.IntVar(&o.nodePorts, "node-ports", 2768, "number of node ports of the API server")
	f.StringVar(&o.etcd, "etcd", "2Gi", "maximum size of etcd's database")
	f.Float64Var(&o.starts, "starts-per-second", 10, "how many instances with one container the API server starts per second; 10 was measured on two CPUs")
	f.StringSliceVar(&o.weights, "weight", nil, "how often a Challenge is started relative to others, as in guestbook=3")
	f.StringSliceVar(&o.settings, "setting", nil, "setting of the operator, instead of the one in the cluster, as in CHALLENGE_CPU_REQUEST=50m")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "use the Challenges of all namespaces")
	f.StringVar(&o.operatorNamespace, "operator-namespace", "", "namespace of the operator (default: search all)")
	_ = c.MarkFlagRequired("players")
	return c
}

// parsePlaying reads 60% or 300.
func parsePlaying(text string, players int) (int, error) {
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || percent <= 0 || percent > 100 {
			return 0, console.Errorf(console.ExitUsage, "--playing %s: must be a percentage from above 0%% to 100%%, or a number", text)
		}
		return int(float64(players)*percent/100 + 0.999999), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, console.Errorf(console.ExitUsage, "--playing %s: must be a percentage such as 60%%, or a number", text)
	}
	return n, nil
}

// planFor checks all options that need no cluster first.
func (r *root) planFor(ctx context.Context, o planOptions) error {
	if o.players < 1 {
		return console.Errorf(console.ExitUsage, "--players must be 1 or more")
	}
	if o.start <= 0 || o.duration <= 0 || o.lifetime < 0 {
		return console.Errorf(console.ExitUsage, "--start, --duration and --lifetime must be positive")
	}
	active, err := parsePlaying(o.playing, o.players)
	if err != nil {
		return err
	}
	weights, err := parseWeights(o.weights)
	if err != nil {
		return err
	}
	known, err := r.readPlanned(ctx, o)
	if err != nil {
		return err
	}
	settings, defaultLifetime, err := planSettings(known.survey, o.settings)
	if err != nil {
		return err
	}
	if o.lifetime == 0 {
		o.lifetime = defaultLifetime
	}
	shapes, err := r.challengeShapes(known.challenges, settings, weights)
	if err != nil {
		return err
	}
	if err := r.countPrepared(shapes, known, o.settings); err != nil {
		return err
	}
	node, err := planNode(o, known.nodes, known.overhead)
	if err != nil {
		return err
	}
	etcd, err := resource.ParseQuantity(o.etcd)
	if err != nil {
		return console.Errorf(console.ExitUsage, "--etcd %s: %w", o.etcd, err)
	}
	result, err := plan.Calculate(shapes,
		plan.Event{Players: o.players, Active: active, Start: o.start, Lifetime: o.lifetime, Duration: o.duration},
		node,
		plan.Limits{NodePorts: o.nodePorts, EtcdMB: etcd.AsApproximateFloat64() / 1e6, StartsPerSecond: o.starts, Nodes: len(known.nodes), Instances: settings.MaxInstances})
	if err != nil {
		return console.Errorf(console.ExitUsage, "%w", err)
	}
	if r.Format == console.JSON {
		if err := r.WriteJSON(result); err != nil {
			return err
		}
		return problemError(!result.Fits() || known.invalid)
	}
	if err := r.showPlan(result, o, node); err != nil {
		return err
	}
	return problemError(known.invalid)
}

// planned is the input of a plan: Challenges of files, or of a cluster with its settings and nodes.
type planned struct {
	challenges []bergv1.Challenge
	// invalid: a Challenge in a file cannot run.
	invalid bool
	survey  doctor.Survey
	nodes   []corev1.Node
	// overhead is the number of other pods on each node.
	overhead int
}

// readPlanned asks no cluster where files are given: the survey is empty then, and its settings are the defaults.
func (r *root) readPlanned(ctx context.Context, o planOptions) (known planned, err error) {
	if len(o.files) > 0 {
		known.challenges, known.invalid, err = r.readChallenges(o.files, o.settings)
		return known, err
	}
	c, err := r.open()
	if err != nil {
		return known, err
	}
	var list bergv1.ChallengeList
	opts := []client.ListOption{client.InNamespace(c.Namespace)}
	if o.allNamespaces {
		opts = nil
	}
	if err := c.List(ctx, &list, opts...); err != nil {
		return known, cluster.Explain("list Challenges", err)
	}
	known.challenges = list.Items
	if len(known.challenges) == 0 {
		return known, console.Errorf(console.ExitNotFound, "namespace %s has no Challenge: choose another namespace with -n, or files with -f", c.Namespace)
	}
	if known.survey, err = doctor.ReadSettings(ctx, c, o.operatorNamespace); err != nil {
		return known, err
	}
	known.nodes, known.overhead = schedulableNodes(ctx, c)
	return known, nil
}

// challengeShapes returns the resources of an instance of each Challenge. A Challenge without a weight has weight 1.
func (r *root) challengeShapes(challenges []bergv1.Challenge, settings plan.Settings, weights map[string]float64) (shapes []plan.Shape, err error) {
	for i := range challenges {
		if len(challenges[i].Spec.Containers) == 0 {
			r.Notef("%s Challenge %s has no containers: skipped", r.PaintErr(console.Yellow, "warning:"), challenges[i].Name)
			continue
		}
		weight, given := weights[challenges[i].Name]
		if !given {
			weight = 1
		}
		delete(weights, challenges[i].Name)
		shape, err := plan.NewShape(&challenges[i], settings, weight)
		if err != nil {
			return nil, console.Errorf(console.ExitUsage, "%w", err)
		}
		shapes = append(shapes, shape)
	}
	for name := range weights {
		return nil, console.Errorf(console.ExitUsage, "--weight %s: the Challenge does not exist", name)
	}
	return shapes, nil
}

// countPrepared adds the prepared instances of spec.warm, as evenly within the operator's limit as the operator shares it.
func (r *root) countPrepared(shapes []plan.Shape, known planned, given []string) error {
	const name = "CHALLENGE_WARM_MAX_INSTANCES"
	text, _ := known.survey.Setting(name)
	for _, s := range given {
		if value, ok := strings.CutPrefix(s, name+"="); ok {
			text = value
		}
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 0 {
		return console.Errorf(console.ExitUsage, "%s=%s: must be a number, 0 to prepare none", name, text)
	}
	wanted, rest := map[string]int{}, 0
	for n := range known.challenges {
		if w := known.challenges[n].Spec.Warm; w != nil {
			wanted[known.challenges[n].Name] = int(w.Min)
			rest += int(w.Min)
		}
	}
	if limit < rest {
		r.Notef("%s the Challenges ask for %d prepared instances, and %s allows %d: raise it, or try --setting %s=%d",
			r.PaintErr(console.Yellow, "warning:"), rest, name, limit, name, rest)
	}
	minima := make([]int, len(shapes))
	for n := range shapes {
		minima[n] = wanted[shapes[n].Challenge]
	}
	for n, count := range plan.Share(minima, limit) {
		shapes[n].Prepared = count
	}
	return nil
}

// parseWeights accepts 0, for a Challenge that players do not start.
func parseWeights(texts []string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		weight, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || weight < 0 {
			return nil, console.Errorf(console.ExitUsage, "--weight %s: must be CHALLENGE=NUMBER, as in guestbook=3", text)
		}
		out[name] = weight
	}
	return out, nil
}

// planSettings reads settings from the command line, then as the operator uses them, and else their defaults.
func planSettings(s doctor.Survey, given []string) (plan.Settings, time.Duration, error) {
	own := map[string]string{}
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(doctor.SettingNames, name) {
			return plan.Settings{}, 0, console.Errorf(console.ExitUsage, "--setting %s: must be NAME=VALUE, with the name of a setting that affects the plan", text)
		}
		own[name] = value
	}
	value := func(name string) string {
		if v, ok := own[name]; ok {
			return v
		}
		v, _ := s.Setting(name)
		return v
	}
	var out plan.Settings
	for name, to := range map[string]*resource.Quantity{
		"CHALLENGE_CPU_REQUEST": &out.CPURequest, "CHALLENGE_CPU_LIMIT": &out.CPULimit,
		"CHALLENGE_MEMORY_REQUEST": &out.MemoryRequest, "CHALLENGE_MEMORY_LIMIT": &out.MemoryLimit,
		"CHALLENGE_EPHEMERAL_STORAGE_REQUEST": &out.DiskRequest,
	} {
		q, err := resource.ParseQuantity(value(name))
		if err != nil {
			return out, 0, console.Errorf(console.ExitUsage, "%s=%s: %w", name, value(name), err)
		}
		*to = q
	}
	out.Policies = 1
	if value("NETWORK_POLICY") == "both" {
		out.Policies = 2
	}
	out.Headless = value("CHALLENGE_ADDITIONAL_HEADLESS_SERVICE") == "true"
	out.PullSecret = value("PULL_SECRET_NAME") != ""
	limit, err := strconv.Atoi(value("CHALLENGE_MAX_INSTANCES"))
	if err != nil || limit < 0 {
		return out, 0, console.Errorf(console.ExitUsage, "CHALLENGE_MAX_INSTANCES=%s: must be a number, 0 for no limit", value("CHALLENGE_MAX_INSTANCES"))
	}
	out.MaxInstances = limit
	timeout, err := time.ParseDuration(value("CHALLENGE_INSTANCE_TIMEOUT"))
	if err != nil {
		return out, 0, console.Errorf(console.ExitUsage, "CHALLENGE_INSTANCE_TIMEOUT: %w", err)
	}
	return out, timeout, nil
}

// schedulableNodes returns the nodes of the cluster that take instances, and how many other pods each runs. It returns
// none if the user may not read them.
func schedulableNodes(ctx context.Context, c *cluster.Cluster) (nodes []corev1.Node, overhead int) {
	var list corev1.NodeList
	if c.List(ctx, &list) != nil {
		return nil, 0
	}
	nodes = view.SelectNodes(list.Items)
	var pods corev1.PodList
	if c.List(ctx, &pods) != nil || len(nodes) == 0 {
		return nodes, 0
	}
	virtual := 0
	for _, p := range pods.Items {
		if p.Labels[bergv1.LabelComponent] != bergv1.ComponentPod && p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning {
			virtual++
		}
	}
	return nodes, (virtual + len(nodes) - 1) / len(nodes)
}

// planNode returns the size of a node: flags have priority, then the smallest node of the cluster, then a default. The
// smallest one keeps the plan on the safe side.
func planNode(o planOptions, nodes []corev1.Node, overhead int) (plan.Node, error) {
	out := plan.Node{CPU: resource.MustParse("16"), Memory: resource.MustParse("64Gi"), Pods: 110, Overhead: overhead, Price: o.price}
	if len(nodes) > 0 {
		smallest := slices.MinFunc(nodes, func(a, b corev1.Node) int { return a.Status.Allocatable.Cpu().Cmp(*b.Status.Allocatable.Cpu()) })
		size := view.NodeSize(&smallest, 0)
		out.CPU, out.Memory, out.Disk, out.Pods = size.CPU, size.Memory, size.Disk, size.Pods
	}
	for flag, given := range map[string]struct {
		text string
		to   *resource.Quantity
	}{"--node-cpu": {o.nodeCPU, &out.CPU}, "--node-memory": {o.nodeMem, &out.Memory}, "--node-disk": {o.nodeDisk, &out.Disk}} {
		if given.text == "" {
			continue
		}
		q, err := resource.ParseQuantity(given.text)
		if err != nil || q.Sign() <= 0 {
			return out, console.Errorf(console.ExitUsage, "%s %s: must be a positive amount, as in 16 or 64Gi", flag, given.text)
		}
		*given.to = q
	}
	if o.nodePods > 0 {
		out.Pods = o.nodePods
	}
	if o.overhead >= 0 {
		out.Overhead = o.overhead
	}
	return out, nil
}

// readChallenges reads the Challenges in files and folders, and skips other kinds. It shows what lint finds in them, and
// reports whether that has an error.
func (r *root) readChallenges(files, given []string) (all []bergv1.Challenge, failed bool, err error) {
	settings, err := parseRuleSettings(given)
	if err != nil {
		return nil, false, err
	}
	sources, err := r.sources(files, false)
	if err != nil {
		return nil, false, err
	}
	found := 0
	for _, s := range sources {
		result := lint.Check(s, settings)
		found += result.Found
		all = append(all, result.Challenges...)
		for _, f := range result.Findings {
			if f.Severity == lint.Error {
				failed = true
				r.Notef("%s %s:%d: %s: %s", r.PaintErr(console.Red, "error:"), f.File, f.Line, f.Field, console.OneLine(f.Message))
			}
		}
	}
	switch {
	case len(all) > 0:
		return all, failed, nil
	case found > 0 || failed:
		return nil, true, console.Errorf(console.ExitUsage, "no Challenge in %s can be read: see kubectl berg lint --help", strings.Join(files, ", "))
	default:
		return nil, false, console.Errorf(console.ExitNotFound, "no Challenge found in %s", strings.Join(files, ", "))
	}
}

// showPlan shows what is needed and the five limits that come first.
func (r *root) showPlan(p plan.Result, o planOptions, n plan.Node) error {
	if p.Impossible != "" {
		r.Printf("%s %s\n", r.paintSymbol(problemSymbol), p.Impossible)
		return problemError(true)
	}
	var needs, limits [][]console.Cell
	row := func(label, amount, note string) {
		needs = append(needs, []console.Cell{{Text: label}, {Text: amount, Colour: console.Bold}, {Text: note, Colour: console.Faint}})
	}
	prepared := 0
	for _, s := range p.Shapes {
		prepared += s.Prepared
	}
	note := fmt.Sprintf("for %d players and %d Challenges", o.players, len(p.Shapes))
	if prepared > 0 {
		note += fmt.Sprintf("; %d of them prepared", prepared)
	}
	row("instances", strconv.Itoa(p.Instances), note)
	row("pods", strconv.Itoa(p.Pods), "")
	row("nodes", strconv.Itoa(p.Nodes), fmt.Sprintf("with %s CPUs, %s and %d pods each; determined by: %s", n.CPU.String(), n.Memory.String(), n.Pods, p.NodesBy))
	row("CPU", fmt.Sprintf("%.1f", p.CPU), "reserved; pods may use more")
	row("memory", fmt.Sprintf("%.1f GiB", p.MemoryGiB), "reserved")
	row("disk", fmt.Sprintf("%.1f GiB", p.DiskGiB), "reserved, without images")
	row("node ports", strconv.Itoa(p.NodePorts), fmt.Sprintf("of %d", o.nodePorts))
	row("routes", strconv.Itoa(p.Routes), "")
	row("requests", fmt.Sprintf("%.1f per second", p.RequestsPerSecond), fmt.Sprintf("of the operator, while all start within %s: %.1f starts per second", console.Duration(o.start), p.StartsPerSecond))
	row("", fmt.Sprintf("%.1f per second", p.SteadyPerSecond), "of the operator later, while instances end and start")
	row("etcd", fmt.Sprintf("%.0f MB", p.EtcdMB), "")
	row("API server", fmt.Sprintf("%.0f MiB", p.APIServerMiB), "memory")
	row("operator", fmt.Sprintf("%.0f MiB", p.OperatorMiB), "memory")
	if o.price > 0 {
		row("cost", strings.TrimSpace(fmt.Sprintf("%.2f %s", p.Cost, o.currency)), fmt.Sprintf("%d nodes for %s", p.Nodes, console.Duration(o.duration)))
	}
	(&console.Table{Console: r.Console, Header: []string{"", "NEEDED", ""}}).Write(needs...)
	r.Printf("\nFirst limits:\n")
	for _, limit := range p.Breaks[:min(5, len(p.Breaks))] {
		used := console.Cell{Text: fmt.Sprintf("%.0f%%", limit.Share*100), Colour: console.Green}
		switch {
		case limit.Share > 1:
			used.Colour = console.Red
		case limit.Share > 0.8:
			used.Colour = console.Yellow
		}
		limits = append(limits, []console.Cell{{Text: strconv.Itoa(limit.At)}, {Text: limit.What}, used, {Text: limit.Do}})
	}
	(&console.Table{Console: r.Console, Header: []string{"AT INSTANCES", "LIMIT", "USED", "WHAT TO DO"}, Shrink: []int{3}}).Write(limits...)
	return problemError(!p.Fits())
}
