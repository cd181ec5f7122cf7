package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/test/lib/installed"
)

// installations are the API groups of installations whose tokens are tried, by their folders in config.
var installations = [][]string{{"berg"}, {"hexactf"}, {"quix"}, {"tunnel"}, {"kibaship"}, {"berg", "hexactf", "quix", "tunnel", "kibaship"}}

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
	"ciliumnetworkpolicies":  "spec: {endpointSelector: {}, ingress: [{}]}",
	"httproutes":             "spec: {}",
	"tlsroutes":              "spec: {hostnames: [a.example.com], rules: [{backendRefs: [{name: a, port: 80}]}]}",
	"pods":                   "spec: {containers: [{name: a, image: a}]}",
	"deployments":            "spec:" + indented(fmt.Sprintf(podTemplate, "Always", "{}")),
	"jobs":                   "spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}",
	"privileged deployments": "spec:" + indented(fmt.Sprintf(podTemplate, "Always", "{privileged: true}")),
	"SYS_ADMIN deployments":  "spec:" + indented(fmt.Sprintf(podTemplate, "Always", "{capabilities: {add: [SYS_ADMIN]}}")),
}

func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// attack tries what the token of each installation may do, and compares the result with the table in a page.
func attack(ctx context.Context, page string, stdout io.Writer) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	if err := installed.Definitions(ctx, admin, "rights"); err != nil {
		return err
	}
	for _, c := range columns() {
		for _, ns := range c.namespaces {
			if err := prepare(ctx, admin, ns); err != nil {
				return err
			}
		}
	}
	table := []string{"| token of | lists in the whole cluster | " + strings.Join(titles(), " | ") + " |", "|" + strings.Repeat(" --- |", len(columns())+2)}
	for _, groups := range installations {
		row, err := try(ctx, admin, config, groups)
		if err != nil {
			return fmt.Errorf("the token of %s: %w", strings.Join(groups, ", "), err)
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
	group := map[string]string{"deployments": "apps", "events": "events.k8s.io"}[plain] // others have kinds of these names
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
		"app.kubernetes.io/managed-by": "berg",
	})
	return o, nil
}

// try returns the row of an installation.
func try(ctx context.Context, admin client.Client, config *rest.Config, groups []string) (row string, err error) {
	name := "rights-" + strings.Join(groups, "-")
	if err := client.IgnoreAlreadyExists(admin.Create(ctx, namespaceWith(name, nil))); err != nil {
		return "", err
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: installed.Account}
	user := "system:serviceaccount:" + name + ":" + installed.Account
	var rules []rbacv1.PolicyRule
	for _, group := range groups {
		role := &rbacv1.ClusterRole{}
		if err := admin.Get(ctx, client.ObjectKey{Name: "berg-operator-" + group}, role); err != nil {
			return "", err
		}
		rules = append(rules, role.Rules...)
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + group}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		}
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, binding)); err != nil {
			return "", err
		}
		if err := inEffect(ctx, admin, user, role.Rules); err != nil {
			return "", err
		}
	}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user}
	thief, err := client.New(as, client.Options{})
	if err != nil {
		return "", err
	}
	cells := []string{strings.Join(groups, ", "), strings.Join(listed(rules), ", ")}
	for _, c := range columns() {
		done := map[string]map[string]bool{} // verbs by resource
		for _, ns := range c.namespaces {
			if err := tryIn(ctx, thief, account, rules, ns.Name, done); err != nil {
				return "", err
			}
		}
		cells = append(cells, describe(done))
	}
	return "| " + strings.Join(cells, " | ") + " |", nil
}

// inEffect waits until the API server knows the rights of a role that was bound a moment ago.
func inEffect(ctx context.Context, admin client.Client, user string, rules []rbacv1.PolicyRule) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, rule := range rules {
			attributes := authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0]}
			attributes.Resource, attributes.Subresource, _ = strings.Cut(rule.Resources[0], "/")
			if len(rule.ResourceNames) > 0 {
				attributes.Name = rule.ResourceNames[0]
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &attributes}}
			if err := admin.Create(ctx, review); err != nil || !review.Status.Allowed {
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

// tryIn tries every right that writes, in one namespace, and adds what was done.
func tryIn(ctx context.Context, thief client.Client, account rbacv1.Subject, rules []rbacv1.PolicyRule, namespace string, done map[string]map[string]bool) error {
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
					failed = errors.Join(failed, tryBinding(ctx, thief, account, rule.ResourceNames, namespace, note))
				case !slices.Contains([]string{"create", "update", "patch", "delete"}, verb), ownGroup(rule.APIGroups[0]):
				case resource == "rolebindings", resource == "validatingwebhookconfigurations": // with the verb bind; fence_test.go
				default:
					if _, known := attempts[resource]; !known {
						return fmt.Errorf("%s of %s: add an attempt", verb, resource)
					}
					for attempt := range attempts {
						if attempt == resource || verb == "create" && strings.HasSuffix(attempt, " "+resource) {
							failed = errors.Join(failed, tryVerb(ctx, thief, attempt, verb, namespace, note))
						}
					}
				}
			}
		}
	}
	return failed
}

type noter func(resource, verb string, err error) error

func tryVerb(ctx context.Context, thief client.Client, attempt, verb, namespace string, note noter) error {
	o, err := newAttempt(thief, attempt, namespace)
	if err != nil {
		return err
	}
	if verb != "create" {
		o.SetName("existing")
	}
	if attempt == "namespaces" && verb != "create" {
		o.SetName(namespace)
	}
	switch verb {
	case "create":
		if attempt == "namespaces" {
			return nil // the name of a namespace says whose it is
		}
		return note(attempt, verb, thief.Create(ctx, o, client.DryRunAll))
	case "update", "patch":
		change := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"attempt":"true"}}}`))
		if verb == "update" {
			if err := thief.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return note(attempt, verb, err)
			}
			o.SetLabels(map[string]string{"attempt": "true"})
			return note(attempt, verb, thief.Update(ctx, o, client.DryRunAll))
		}
		return note(attempt, verb, thief.Patch(ctx, o, change, client.DryRunAll))
	case "delete":
		return note(attempt, verb, thief.Delete(ctx, o, client.DryRunAll))
	default:
		return nil
	}
}

// tryBinding binds roles to the account itself, to another one and to a user.
func tryBinding(ctx context.Context, thief client.Client, account rbacv1.Subject, roles []string, namespace string, note noter) error {
	var failed error
	for _, role := range roles {
		for receiver, subject := range map[string]rbacv1.Subject{
			"itself":          account,
			"any account":     {Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"},
			"any user":        {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"},
			"every account":   {Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"},
			"Quix's platform": {Kind: rbacv1.ServiceAccountKind, Namespace: "quix-environment", Name: "quix-platform-account"},
		} {
			b := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "attempt"}, Subjects: []rbacv1.Subject{subject},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			}
			failed = errors.Join(failed, note("role "+role, "to "+receiver, thief.Create(ctx, b, client.DryRunAll)))
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
