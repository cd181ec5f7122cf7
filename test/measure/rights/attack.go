package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/test/lib/installed"
)

// installation is an account whose token is tried. Roles of one name may be a ClusterRole, and Roles of single namespaces.
type installation struct {
	title, account string
	roles          []string
}

// installations are the operator's with each API group, with all, and with all options, and those of the other programs.
func installations() []installation {
	names := []string{"berg", "hexactf", "quix", "tunnel", "kibaship"}
	operator := func(title string, names ...string) installation {
		i := installation{title, installed.Account, []string{"berg-operator-leader-election"}}
		for _, name := range names {
			i.roles = append(i.roles, "berg-operator-"+name)
		}
		return i
	}
	all := make([]installation, 0, len(names)+5)
	for _, name := range names {
		all = append(all, operator(name, name))
	}
	options := []string{"berg-check", "berg-nodes", "berg-prepull", "berg-record", "berg-warm", "kibaship-retention", "tunnel-host"}
	return append(all,
		operator(strings.Join(names, ", "), names...),
		operator("these with all optional features", slices.Concat(names, options)...),
		installation{"the gate", "berg-gate", []string{"berg-gate", "berg-gate-pods"}},
		installation{"the platform API", "berg-api", []string{"berg-api", "berg-api-nodes", "berg-api-operator", "berg-api-pods", "berg-api-tokens"}},
		installation{"the receiver of webhooks", "kibaship-pushes", []string{"kibaship-pushes"}},
	)
}

// folders are what an administrator adds to config/default for these installations.
var folders = []string{
	"config/berg/api", "config/berg/check", "config/berg/nodes", "config/berg/prepull", "config/berg/record", "config/berg/warm",
	"config/gate", "config/kibaship/pushes", "config/kibaship/retention", "config/tunnel/host",
}

// column is a kind of namespace in the table.
type column struct {
	title      string
	namespaces []*corev1.Namespace
}

func namespaceWith(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// columns are the namespaces in which every right is tried.
func columns() []column {
	return []column{
		{"in namespaces of others", []*corev1.Namespace{namespaceWith("rights-others", nil), namespaceWith(metav1.NamespaceSystem, nil)}},
		{"where the label of an administrator allows it", []*corev1.Namespace{namespaceWith("rights-allowed", map[string]string{
			"apps.hexactf.io/operator": "allowed", "usvc-dev.developer.microsoft.com/operator": "allowed",
		})}},
		{"in namespaces of an API group", []*corev1.Namespace{
			namespaceWith("challenge-rights", nil), namespaceWith("project-rights-ns-kibaship-com", nil),
			namespaceWith("rights-environment", map[string]string{"quix.io/managed-by": "quix-environment-operator"}),
			namespaceWith("rights-network", map[string]string{"usvc-dev.developer.microsoft.com/managed-by": "berg-operator"}),
		}},
	}
}

const podTemplate = `
selector: {matchLabels: {app: attempt}}
template:
  metadata: {labels: {app: attempt}}
  spec: {restartPolicy: %s, containers: [{name: a, image: a, securityContext: %s}]}
`

// attempts are what an attacker would like to write, by resource; a word before it names a dangerous variant.
var attempts = map[string]string{
	"configmaps": "", "secrets": "", "namespaces": "",
	"events":                 "{eventTime: '2026-01-01T00:00:00.000000Z', reportingController: a.example/a, reportingInstance: a, action: a, reason: a, type: Normal}",
	"services":               "spec: {type: NodePort, ports: [{port: 80}]}",
	"networkpolicies":        "spec: {podSelector: {}, ingress: [{}]}",
	"poddisruptionbudgets":   "spec: {maxUnavailable: 0, selector: {}}",
	"leases":                 "spec: {holderIdentity: a}",
	"gateways":               "spec: {gatewayClassName: other, listeners: [{name: a, port: 80, protocol: HTTP}]}",
	"gatewayclasses":         "spec: {controllerName: example.com/other}",
	"ciliumnetworkpolicies":  "spec: {endpointSelector: {}, ingress: [{}]}",
	"httproutes":             "spec: {}",
	"tlsroutes":              "spec: {hostnames: [a.example.com], rules: [{backendRefs: [{name: a, port: 80}]}]}",
	"pods":                   "spec: {containers: [{name: a, image: a}]}",
	"deployments":            "spec:" + indented(fmt.Sprintf(podTemplate, "Always", "{}")),
	"jobs":                   "spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}",
	"privileged deployments": "spec:" + indented(fmt.Sprintf(podTemplate, "Always", "{privileged: true}")),
	"SYS_ADMIN deployments":  "spec:" + indented(fmt.Sprintf(podTemplate, "Always", "{capabilities: {add: [SYS_ADMIN]}}")),
}

// statuses are what an attacker would like to write into a status.
var statuses = map[string]string{
	"pods":           `{"status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]}}`,
	"gateways":       `{"status": {"addresses": [{"value": "192.0.2.1"}]}}`,
	"gatewayclasses": `{"status": {"conditions": [` + condition + `]}}`,
	"httproutes":     `{"status": {"parents": [` + parent + `]}}`,
	"tlsroutes":      `{"status": {"parents": [` + parent + `]}}`,
}

const (
	condition = `{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}`
	parent    = `{"controllerName": "example.com/other", "parentRef": {"name": "a"}, "conditions": [` + condition + `]}`
)

func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// attack tries what the token of each installation may do, and compares the result with the table in a page.
func attack(ctx context.Context, page string, stdout io.Writer) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	ctrl.SetLogger(logr.Discard())
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, ns := range []string{"berg", "berg-records", "kibaship-images"} { // of which Roles are
		if err := prepare(ctx, admin, namespaceWith(ns, nil)); err != nil {
			return err
		}
	}
	for _, folder := range append([]string{"config/default"}, folders...) {
		if err := installed.Folder(ctx, admin, folder, "rights"); err != nil {
			return err
		}
	}
	for _, c := range columns() {
		for _, ns := range c.namespaces {
			if err := prepare(ctx, admin, ns); err != nil {
				return err
			}
		}
	}
	table := []string{
		"| token of | lists in the whole cluster | " + strings.Join(titles(), " | ") + " | in single namespaces, by a Role there |",
		"|" + strings.Repeat(" --- |", len(columns())+3),
	}
	for n, i := range installations() {
		row, err := try(ctx, admin, config, i, fmt.Sprint("rights-", n))
		if err != nil {
			return fmt.Errorf("the token of %s: %w", i.title, err)
		}
		table = append(table, row)
	}
	result := strings.Join(table, "\n")
	fmt.Fprintln(stdout, result)
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "\n"+result+"\n") {
		return fmt.Errorf("%s has another table of what a stolen token can do: write this one", page)
	}
	return nil
}

func titles() (all []string) {
	for _, c := range columns() {
		all = append(all, c.title)
	}
	return all
}

// prepare creates a namespace with an object of each kind, which tokens try to change and delete.
func prepare(ctx context.Context, admin client.Client, ns *corev1.Namespace) error {
	if err := client.IgnoreAlreadyExists(admin.Create(ctx, ns)); err != nil {
		return err
	}
	for resource := range attempts {
		o, err := newAttempt(admin, resource, ns.Name)
		if err != nil {
			return err
		}
		if strings.Contains(resource, " ") || resource == "namespaces" {
			continue
		}
		o.SetName("existing")
		o.SetLabels(nil)
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, o)); err != nil {
			return fmt.Errorf("%s in %s: %w", resource, ns.Name, err)
		}
	}
	return nil
}

// newAttempt returns an attempt with the labels of every API group.
func newAttempt(c client.Client, resource, namespace string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(attempts[resource]), &o.Object); err != nil {
		return nil, err
	}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	_, plain, dangerous := strings.Cut(resource, " ")
	if !dangerous {
		plain = resource
	}
	// Others have kinds of these names.
	group := map[string]string{"deployments": "apps", "events": "events.k8s.io", "gateways": "gateway.networking.k8s.io", "leases": "coordination.k8s.io"}[plain]
	kind, err := c.RESTMapper().KindFor(schema.GroupVersionResource{Group: group, Resource: plain})
	if err != nil {
		return nil, err
	}
	o.SetGroupVersionKind(kind)
	o.SetName("attempt")
	if plain == "events" {
		_ = unstructured.SetNestedMap(o.Object, map[string]any{"kind": "Pod", "name": "a", "namespace": namespace}, "regarding")
	}
	if plain != "namespaces" {
		o.SetNamespace(namespace)
	}
	o.SetLabels(map[string]string{
		"apps.hexactf.io/managed-by": "challenge-operator", "usvc-dev.developer.microsoft.com/managed-by": "berg-operator",
		"app.kubernetes.io/managed-by": "berg", "berg.norelect.ch/registration": "attempt",
	})
	return o, nil
}

// thief has a stolen token.
type thief struct {
	client.Client
	admin   client.Client
	account rbacv1.Subject
	// rules hold in the whole cluster, and those of Roles in single namespaces.
	rules []rbacv1.PolicyRule
	roles map[string][]rbacv1.PolicyRule
}

// try returns the row of an installation, in a namespace of its own.
func try(ctx context.Context, admin client.Client, config *rest.Config, i installation, own string) (row string, err error) {
	if err := prepare(ctx, admin, namespaceWith(own, nil)); err != nil {
		return "", err
	}
	t := &thief{admin: admin, account: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: own, Name: i.account}, roles: map[string][]rbacv1.PolicyRule{own: nil}}
	for _, name := range i.roles {
		if err := t.bind(ctx, name); err != nil {
			return "", err
		}
	}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: t.user()}
	if t.Client, err = client.New(as, client.Options{}); err != nil {
		return "", err
	}
	cells := []string{i.title, cmp.Or(strings.Join(listed(t.rules), ", "), "nothing")}
	for _, c := range columns() {
		done := map[string]map[string]bool{} // verbs by resource
		for _, ns := range c.namespaces {
			if err := t.tryIn(ctx, t.rules, ns.Name, done); err != nil {
				return "", err
			}
		}
		cells = append(cells, describe(done))
	}
	var single []string
	for _, ns := range slices.Sorted(maps.Keys(t.roles)) {
		done := map[string]map[string]bool{}
		if err := t.tryIn(ctx, slices.Concat(t.rules, t.roles[ns]), ns, done); err != nil {
			return "", err
		}
		where := "in `" + ns + "`"
		if ns == own {
			where = "in its own"
		}
		if text := describe(done); text != "nothing" {
			single = append(single, where+": "+text)
		}
	}
	cells = append(cells, cmp.Or(strings.Join(single, "; "), "nothing"))
	return "| " + strings.Join(cells, " | ") + " |", nil
}

func (t *thief) user() string {
	return "system:serviceaccount:" + t.account.Namespace + ":" + t.account.Name
}

// bind gives the account the roles of a name, and waits until the API server knows that. A Role of the operator's namespace is one of the
// account's own.
func (t *thief) bind(ctx context.Context, name string) error {
	cluster, ref := &rbacv1.ClusterRole{}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	if err := t.admin.Get(ctx, client.ObjectKey{Name: name}, cluster); client.IgnoreNotFound(err) != nil {
		return err
	} else if err == nil {
		meta := metav1.ObjectMeta{Name: t.account.Namespace + "-" + name}
		if err := t.admin.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{t.account}, RoleRef: ref}); err != nil {
			return err
		}
		t.rules = append(t.rules, cluster.Rules...)
		if err := t.inEffect(ctx, cluster.Rules, ""); err != nil {
			return err
		}
	}
	ref.Kind = "Role"
	roles := &rbacv1.RoleList{}
	if err := t.admin.List(ctx, roles); err != nil {
		return err
	}
	found := cluster.Name != ""
	for _, role := range roles.Items {
		if role.Name != name || strings.HasPrefix(role.Namespace, "rights-") {
			continue
		}
		found = true
		meta := metav1.ObjectMeta{Namespace: role.Namespace, Name: t.account.Namespace + "-" + name}
		if role.Namespace == installed.Namespace {
			meta = metav1.ObjectMeta{Namespace: t.account.Namespace, Name: name}
			if err := t.admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: role.Rules}); err != nil {
				return err
			}
		}
		if err := t.admin.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{t.account}, RoleRef: ref}); err != nil {
			return err
		}
		t.roles[meta.Namespace] = append(t.roles[meta.Namespace], role.Rules...)
		if err := t.inEffect(ctx, role.Rules, meta.Namespace); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("there is no role %s", name)
	}
	return nil
}

// inEffect waits until the API server knows the rights of a role that was bound a moment ago.
func (t *thief) inEffect(ctx context.Context, rules []rbacv1.PolicyRule, namespace string) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, rule := range rules {
			attributes := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0]}
			attributes.Resource, attributes.Subresource, _ = strings.Cut(rule.Resources[0], "/")
			if len(rule.ResourceNames) > 0 {
				attributes.Name = rule.ResourceNames[0]
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: t.user(), ResourceAttributes: &attributes}}
			if err := t.admin.Create(ctx, review); err != nil || !review.Status.Allowed {
				return false, err
			}
		}
		return true, nil
	})
}

// listed returns the resources that rules let an account list, without those of the operator's own API groups.
func listed(rules []rbacv1.PolicyRule) []string {
	all := map[string]bool{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			if slices.Contains(rule.Verbs, "list") && len(rule.ResourceNames) == 0 && !ownGroup(rule.APIGroups[0]) {
				all["`"+resource+"`"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// ownGroup reports whether an API group is the operator's: with its kinds a token does what the operator does.
func ownGroup(group string) bool {
	return slices.Contains([]string{"berg.norelect.ch", "apps.hexactf.io", "quix.io", "usvc-dev.developer.microsoft.com", "platform.operator.kibaship.com"}, group)
}

// reads are the resources of which reading is as bad as writing.
var reads = []string{"secrets"}

// tryIn tries rights that write in one namespace, and those that read Secrets, and adds what was done.
func (t *thief) tryIn(ctx context.Context, rules []rbacv1.PolicyRule, namespace string, done map[string]map[string]bool) error {
	note := func(resource, verb string, err error) error {
		if err == nil {
			if done[resource] == nil {
				done[resource] = map[string]bool{}
			}
			done[resource][verb] = true
			return nil
		}
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("%s %s in %s: %w", verb, resource, namespace, err)
	}
	var failed error
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				switch {
				case verb == "bind":
					failed = errors.Join(failed, t.tryBinding(ctx, rule.ResourceNames, namespace, note))
				case !slices.Contains([]string{"create", "update", "patch", "delete"}, verb) && (!slices.Contains(reads, resource) || !slices.Contains([]string{"get", "list"}, verb)),
					ownGroup(rule.APIGroups[0]):
				case resource == "rolebindings", resource == "validatingwebhookconfigurations": // with the verb bind; fence_test.go
				default:
					if err := t.tryResource(ctx, rule, resource, verb, namespace, note); err != nil {
						failed = errors.Join(failed, err)
					}
				}
			}
		}
	}
	return failed
}

// tryResource tries one verb with every attempt at a resource.
func (t *thief) tryResource(ctx context.Context, rule rbacv1.PolicyRule, resource, verb, namespace string, note noter) error {
	plain, subresource, _ := strings.Cut(resource, "/")
	if _, known := attempts[plain]; !known {
		return fmt.Errorf("%s of %s: add an attempt", verb, resource)
	}
	existing := "existing"
	if len(rule.ResourceNames) > 0 { // an administrator has made it
		existing = rule.ResourceNames[0]
		o, err := newAttempt(t.admin, plain, namespace)
		if err != nil {
			return err
		}
		o.SetName(existing)
		if err := client.IgnoreAlreadyExists(t.admin.Create(ctx, o)); err != nil {
			return err
		}
	}
	if subresource == "status" && verb == "patch" {
		o, err := newAttempt(t, plain, namespace)
		if err != nil {
			return err
		}
		o.SetName(existing)
		patch, dryRun := client.RawPatch(types.MergePatchType, []byte(statuses[plain])), client.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		return note(resource, verb, t.Status().Patch(ctx, o, patch, &client.SubResourcePatchOptions{PatchOptions: dryRun}))
	}
	var failed error
	for attempt := range attempts {
		if attempt == plain || verb == "create" && strings.HasSuffix(attempt, " "+plain) {
			failed = errors.Join(failed, t.tryVerb(ctx, attempt, existing, verb, namespace, note))
		}
	}
	return failed
}

type noter func(resource, verb string, err error) error

func (t *thief) tryVerb(ctx context.Context, attempt, existing, verb, namespace string, note noter) error {
	o, err := newAttempt(t, attempt, namespace)
	if err != nil {
		return err
	}
	if verb != "create" {
		o.SetName(existing)
	}
	if attempt == "namespaces" && verb != "create" {
		o.SetName(namespace)
	}
	switch verb {
	case "create":
		if attempt == "namespaces" {
			return nil // the name of a namespace says whose it is
		}
		return note(attempt, verb, t.Create(ctx, o, client.DryRunAll))
	case "get":
		return note(attempt, verb, t.Get(ctx, client.ObjectKeyFromObject(o), o))
	case "list":
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(o.GroupVersionKind())
		return note(attempt, verb, t.List(ctx, list, client.InNamespace(namespace)))
	case "update", "patch":
		change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"attempt":"true"}}}`))
		if verb == "update" {
			if err := t.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return note(attempt, verb, err)
			}
			o.SetLabels(map[string]string{"attempt": "true"})
			return note(attempt, verb, t.Update(ctx, o, client.DryRunAll))
		}
		return note(attempt, verb, t.Patch(ctx, o, change, client.DryRunAll))
	case "delete":
		return note(attempt, verb, t.Delete(ctx, o, client.DryRunAll))
	default:
		return nil
	}
}

// tryBinding binds roles to the account itself, to another one and to a user.
func (t *thief) tryBinding(ctx context.Context, roles []string, namespace string, note noter) error {
	var failed error
	for _, role := range roles {
		for receiver, subject := range map[string]rbacv1.Subject{
			"itself":          t.account,
			"any account":     {Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"},
			"any user":        {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"},
			"every account":   {Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"},
			"Quix's platform": {Kind: rbacv1.ServiceAccountKind, Namespace: "quix-environment", Name: "quix-platform-account"},
		} {
			b := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "attempt"}, Subjects: []rbacv1.Subject{subject},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			}
			failed = errors.Join(failed, note("role "+role, "to "+receiver, t.Create(ctx, b, client.DryRunAll)))
		}
	}
	return failed
}

// describe returns what was done as the cell of a table.
func describe(done map[string]map[string]bool) string {
	byVerbs := map[string][]string{}
	for _, resource := range slices.Sorted(maps.Keys(done)) {
		verbs := strings.Join(slices.Sorted(maps.Keys(done[resource])), ", ")
		byVerbs[verbs] = append(byVerbs[verbs], "`"+strings.TrimPrefix(resource, "role ")+"`")
	}
	var cells []string
	for _, verbs := range slices.Sorted(maps.Keys(byVerbs)) {
		if strings.HasPrefix(verbs, "to ") {
			cells = append(cells, "bind "+strings.Join(byVerbs[verbs], ", ")+" "+verbs)
		} else {
			cells = append(cells, verbs+": "+strings.Join(byVerbs[verbs], ", "))
		}
	}
	if len(cells) == 0 {
		return "nothing"
	}
	return strings.Join(cells, "; ")
}
