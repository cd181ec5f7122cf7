package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// routesPerRequest is how many routes are read with one request.
const routesPerRequest = 500

// route is the common part of HTTPRoute and TLSRoute.
type route struct {
	Kind, Namespace, Name string
	Hosts                 []gatewayv1.Hostname
	Parents               []gatewayv1.RouteParentStatus
}

// routeProblems returns the Gateway's objections to the routes of an instance, and the routes of
// others that claim its hosts. They are read only when a solver reached another instance: caches
// hold neither the status of routes nor routes of others. A result does not wait for them.
func (r *Reconciler) routeProblems(ctx context.Context, i *bergv1.ChallengeInstance) []string {
	var problems []string
	addProblems := func(target route) { problems = append(problems, routeProblem(target, i)...) }
	var https gatewayv1.HTTPRouteList
	err := r.eachPage(ctx, &https, func() {
		for _, h := range https.Items {
			addProblems(route{"HTTPRoute", h.Namespace, h.Name, h.Spec.Hostnames, h.Status.Parents})
		}
	})
	var tls gatewayv1.TLSRouteList
	err = cmp.Or(err, r.eachPage(ctx, &tls, func() {
		for _, t := range tls.Items {
			addProblems(route{"TLSRoute", t.Namespace, t.Name, t.Spec.Hostnames, t.Status.Parents})
		}
	}))
	if err != nil {
		problems = append(problems, "not all routes could be read: "+err.Error())
	}
	return problems
}

// eachPage reads a list page by page. A kind that is not served has none.
func (r *Reconciler) eachPage(ctx context.Context, list client.ObjectList, do func()) error {
	for {
		err := r.Live.List(ctx, list, client.Limit(routesPerRequest), client.Continue(list.GetContinue()))
		if err != nil {
			if cause := outcome.Classify(err); cause == outcome.NotInstalled || cause == outcome.NotServed {
				return nil
			}
			return err
		}
		do()
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// routeProblem says why a route keeps players from an instance, if it does.
func routeProblem(target route, i *bergv1.ChallengeInstance) (problems []string) {
	name := fmt.Sprintf("%s %s/%s", target.Kind, target.Namespace, target.Name)
	if target.Namespace != i.Status.Namespace {
		for _, host := range target.Hosts {
			if slices.ContainsFunc(i.Status.Services, func(s bergv1.ServiceEndpoint) bool { return strings.EqualFold(s.Hostname, string(host)) }) {
				problems = append(problems, fmt.Sprintf("%s claims the host %s too", name, host))
			}
		}
		return problems
	}
	if len(target.Parents) == 0 {
		return []string{name + ": no controller of a Gateway has processed it"}
	}
	for _, parent := range target.Parents {
		for _, c := range parent.Conditions {
			if c.Status == metav1.ConditionFalse && (c.Type == string(gatewayv1.RouteConditionAccepted) || c.Type == string(gatewayv1.RouteConditionResolvedRefs)) {
				problems = append(problems, fmt.Sprintf("%s: %s is False: %s", name, c.Type, strings.TrimSuffix(c.Reason+": "+c.Message, ": ")))
			}
		}
	}
	return problems
}
