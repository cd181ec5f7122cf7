package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// minKubernetes is the oldest version that the operator supports.
var minKubernetes = semver.MustParse("1.33.0")

// server checks the version of Kubernetes.
func server(s Survey) []Result {
	v, err := semver.ParseTolerant(s.Server)
	switch {
	case err != nil:
		return result("Kubernetes", console.Unknown, fmt.Sprintf("unknown version %q", s.Server), "")
	case v.LT(minKubernetes):
		return result("Kubernetes", console.Problem, fmt.Sprintf("%s is older than 1.33", s.Server), "Upgrade the cluster to 1.33 or later.")
	default:
		return result("Kubernetes", console.OK, s.Server, "")
	}
}

const (
	// warnSkew and wrongSkew are clock differences that disturb certificates and tokens.
	warnSkew  = 5 * time.Second
	wrongSkew = time.Minute
)

// clockSkew compares this machine with the API server by the date of an answer, which has whole seconds.
func clockSkew(s Survey) []Result {
	if !s.SkewKnown {
		return result("clock", console.Unknown, "the API server sends no date", "")
	}
	text := fmt.Sprintf("this machine is %s behind the API server", console.Duration(s.Skew))
	if s.Skew < 0 {
		text = fmt.Sprintf("this machine is %s ahead of the API server", console.Duration(-s.Skew))
	}
	switch {
	case s.Skew.Abs() >= wrongSkew:
		return result("clock", console.Problem, text, "Correct the wrong clock (NTP). Instances expire by the clock of the cluster.")
	case s.Skew.Abs() >= warnSkew:
		return result("clock", console.Warning, text, "Correct the wrong clock (NTP).")
	default:
		return result("clock", console.OK, "this machine and the API server differ by less than 5 seconds", "")
	}
}

// The APIs that are checked.
const (
	APIBerg    = "berg.norelect.ch/v1"
	APIGateway = "gateway.networking.k8s.io/v1"
	APICilium  = "cilium.io/v2"
)

// crds checks the two kinds without which nothing works. Other kinds of the group are optional.
func crds(s Survey) []Result {
	have := s.APIs[APIBerg].Resources
	if !slices.Contains(have, "challenges") || !slices.Contains(have, "challengeinstances") {
		return result("CRDs", console.Problem, APIBerg+" is not served: the operator is not installed, or its CRDs were deleted",
			"Install the operator (kubectl apply --server-side -k config/default), or choose another cluster with --context.")
	}
	return result("CRDs", console.OK, "Challenge and ChallengeInstance are served", "")
}

// rights names the ClusterRoles that would grant what is missing, and separately the permissions that no role for players or
// authors has.
func rights(s Survey) []Result {
	if message := s.Unreadable["rights"]; message != "" {
		return result("your permissions", console.Unknown, message, "")
	}
	var missing, roles, optional []string
	for _, r := range s.Rights {
		if r.Allowed {
			continue
		}
		missing = append(missing, fmt.Sprintf("%s %s (%s)", r.Verb, r.Resource, r.For))
		if role := cluster.RoleFor(r.Verb, r.Resource); role != "" {
			roles = append(roles, role)
		} else {
			optional = append(optional, r.Verb+" "+r.Resource)
		}
	}
	if len(missing) == 0 {
		return result("your permissions", console.OK, "sufficient for all commands", "")
	}
	var advice []string
	if len(roles) > 0 {
		slices.Sort(roles)
		advice = append(advice, "Ask the administrator for a binding to "+strings.Join(slices.Compact(roles), ", ")+".")
	}
	if len(optional) > 0 {
		advice = append(advice, "The roles for players and authors do not grant this: ask the administrator for the right to "+strings.Join(optional, ", ")+" in the namespaces of instances.")
	}
	return result("your permissions", console.Warning, "you may not: "+strings.Join(missing, "; "), strings.Join(advice, " "))
}
