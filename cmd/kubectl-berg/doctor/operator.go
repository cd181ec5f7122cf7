package doctor

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// operator ends at the first problem. The leader is shown only where a replica is ready.
func operator(s Survey) []Result {
	if results, hidden := s.hidden("operator", "operator"); hidden {
		return results
	}
	d := s.Deployment
	if d == nil {
		return result("operator", console.Problem, "the Deployment of the operator was not found", "Install the operator, or name its namespace: --operator-namespace.")
	}
	kubectl := "kubectl -n " + d.Namespace
	var want int32 = 1
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	switch ready := d.Status.ReadyReplicas; {
	case want == 0:
		return result("operator", console.Problem, "scaled to 0: no instance starts or ends", fmt.Sprintf("%s scale deployment/%s --replicas=2", kubectl, d.Name))
	case ready == 0:
		return result("operator", console.Problem, "no replica is ready: no instance starts or ends", kubectl+" describe pods -l control-plane=controller-manager shows the reason.")
	case ready < want:
		return append(result("operator", console.Warning, fmt.Sprintf("%d of %d replicas are ready", ready, want), kubectl+" describe pods -l control-plane=controller-manager shows the reason."), lease(s)...)
	case d.Status.UpdatedReplicas < want:
		return append(result("operator", console.Warning, "the new settings or the new version do not start; the old pods keep working", kubectl+" logs -l control-plane=controller-manager --tail=20 names an invalid setting."), lease(s)...)
	default:
		return append(result("operator", console.OK, fmt.Sprintf("%d of %d replicas are ready in %s", ready, want, d.Namespace), ""), lease(s)...)
	}
}

// lease checks that a replica is leader and renews its lease. It tolerates the clock skew of warnSkew, because the
// leader writes its own time.
func lease(s Survey) []Result {
	if s.setting("LEADER_ELECT") == "false" {
		return nil
	}
	if results, hidden := s.hidden("leader", "lease"); hidden {
		return results
	}
	silent := s.Now.Sub(s.Renewed)
	switch {
	case s.Leader == "":
		return result("leader", console.Problem, "no replica is leader: no instance starts or ends", "Read the operator's log and docs/runbooks/BergOperatorNoLeader.md.")
	case silent > s.LeaseTime+warnSkew:
		return result("leader", console.Problem, fmt.Sprintf("the leader has not renewed its lease for %s", console.Duration(silent)), "Read the operator's log and docs/runbooks/BergOperatorNoLeader.md.")
	default:
		name, _, _ := strings.Cut(s.Leader, "_")
		return result("leader", console.OK, name, "")
	}
}

// versions compares the operator with this plugin. Before version 1 each minor version may be incompatible.
func versions(s Survey) []Result {
	image := ""
	if c := s.container(); c != nil {
		image = c.Image
	}
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !tagged {
		return nil
	}
	tag, _, _ = strings.Cut(tag, "@")
	its, errOperator := semver.ParseTolerant(tag)
	own, errPlugin := semver.ParseTolerant(s.Plugin)
	switch {
	case errOperator != nil || errPlugin != nil:
		return result("versions", console.Unknown, fmt.Sprintf("operator %s, this plugin %s", tag, s.Plugin), "")
	case its.Major != own.Major || its.Major == 0 && its.Minor != own.Minor:
		return result("versions", console.Warning, fmt.Sprintf("operator %s, this plugin %s", its, own), "Install the plugin of the same version as the operator.")
	default:
		return result("versions", console.OK, fmt.Sprintf("operator %s, this plugin %s", its, own), "")
	}
}
