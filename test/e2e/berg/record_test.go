package berg

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/record"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// recordsNamespace is that of config/berg/record.
const recordsNamespace = "berg-records"

var _ = Describe("A record on real pods", Label("record"), Serial, func() {
	It("tells how containers ended and what they wrote, without the flag", func(ctx SpecContext) {
		allowRecords(ctx)
		withSetting(ctx, "RECORD_RETENTION", "1h")
		// A log counts as the disk of its pod, which would be evicted.
		withSetting(ctx, "CHALLENGE_EPHEMERAL_STORAGE_LIMIT", "8Gi")
		stage := journey.NewStage(ctx)
		talks := func(noise string, more ...string) bergv1.Container {
			box := journey.Toolbox("box")
			box.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
			box.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_SAY": bergv1.StringValue("FLAG"), "TOOLBOX_NOISE": bergv1.StringValue(noise)}
			for i := 0; i < len(more); i += 2 {
				box.Environment[more[i]] = bergv1.StringValue(more[i+1])
			}
			return box
		}
		stage.Challenge(ctx, "talks", talks("0"))
		stage.Challenge(ctx, "crashes", talks("0", "TOOLBOX_EXIT", "3"))
		stage.Challenge(ctx, "floods", talks("1000000000"))

		By("letting one say its flag in all ways, and end")
		talking := stage.Start(ctx, stage.Instance("talks"))
		talking.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		flooding := stage.Start(ctx, stage.Instance("floods"))
		crashing := stage.Start(ctx, stage.Instance("crashes"))
		hasSpoken(ctx, talking.InstanceNamespace())
		talking.Delete(ctx)
		talking.ExpectEnd(ctx)
		r := recordOf(ctx, talking)
		box := onlyContainer(r, talking.Flag)
		Expect(box.State).To(Equal("Running"))
		Expect(box.LogCut).To(BeTrue())
		Expect(len(box.Log)).To(And(BeNumerically(">", 1000), BeNumerically("<=", record.MaxLog)))
		// It was cut somewhere within thousands of flags.
		Expect(strings.ReplaceAll(box.Log, "<flag>", "")).To(Equal("\nsaid\n"))

		By("letting one crash again and again")
		expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
			pods, err := world.Pods(ctx, crashing.InstanceNamespace(), client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod})
			if err != nil {
				return err
			}
			return deployed.ErrorIf(len(pods) == 0 || len(pods[0].Status.ContainerStatuses) == 0 || pods[0].Status.ContainerStatuses[0].RestartCount < 2, "it was restarted less than twice")
		})
		crashing.Delete(ctx)
		crashing.ExpectEnd(ctx)
		r = recordOf(ctx, crashing)
		box = onlyContainer(r, crashing.Flag)
		Expect(box.Exit).To(HaveField("Code", BeEquivalentTo(3)))
		Expect(box.Restarts).To(BeNumerically(">=", 2))
		Expect(r.Spec.Restarts).To(Equal(box.Restarts))
		// Its conditions tell of the loop between two runs alone: this container is ready while it runs.
		Expect(box.Log).To(ContainSubstring("ending with exit code 3"))

		By("letting one write a gigabyte")
		flooding.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		hasSpoken(ctx, flooding.InstanceNamespace())
		began := time.Now()
		flooding.Delete(ctx)
		flooding.ExpectEnd(ctx)
		AddReportEntry("flood", fmt.Sprintf("gone %s after its deletion", time.Since(began).Round(time.Millisecond)))
		box = onlyContainer(recordOf(ctx, flooding), flooding.Flag)
		Expect(box.LogCut).To(BeTrue())
		Expect(box.Log).To(HaveSuffix("<flag>\nsaid\n"))

		By("binding the right to read logs nowhere else")
		elsewhere := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: record.LogsRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "berg-operator-system", Name: "berg-operator-controller-manager"}},
		}
		Expect(apierrors.IsForbidden(world.Create(ctx, elsewhere, client.DryRunAll))).To(BeTrue())
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

// hasSpoken waits until a container has said its flag.
func hasSpoken(ctx context.Context, namespace string) {
	GinkgoHelper()
	expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "kubectl", "logs", "-n", namespace, "deployment/box", "--tail=1").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return deployed.ErrorIf(!strings.HasSuffix(string(out), "said\n"), "it has not said its flag yet")
	})
}

// onlyContainer returns the container of a record in which no flag is, in any notation.
func onlyContainer(r *bergv1.ChallengeInstanceRecord, flag string) bergv1.RecordedContainer {
	GinkgoHelper()
	text, err := json.Marshal(r)
	Expect(err).NotTo(HaveOccurred())
	inside := strings.TrimSuffix(strings.TrimPrefix(flag, "flag{"), "}")
	for _, notation := range []string{inside, fmt.Sprintf("%x", inside), url.QueryEscape(flag), inside[len(inside)/2:]} {
		Expect(string(text)).NotTo(ContainSubstring(notation))
	}
	Expect(r.Spec.Containers).To(HaveLen(1))
	Expect(r.Spec.Containers[0].LogMissing).To(BeEmpty())
	return r.Spec.Containers[0]
}

// recordOf waits for the record of an instance that has ended.
func recordOf(ctx context.Context, of *journey.Story) *bergv1.ChallengeInstanceRecord {
	GinkgoHelper()
	var found *bergv1.ChallengeInstanceRecord
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
		var all bergv1.ChallengeInstanceRecordList
		if err := world.List(ctx, &all, client.InNamespace(recordsNamespace), client.MatchingLabels{bergv1.LabelOwnerID: of.OwnerID}); err != nil {
			return err
		}
		if len(all.Items) == 1 {
			found = &all.Items[0]
		}
		return deployed.ErrorIf(found == nil, fmt.Sprintf("%d records", len(all.Items)))
	})
	return found
}

// allowRecords gives the operator the rights of config/berg/record until the spec ends.
func allowRecords(ctx context.Context) {
	GinkgoHelper()
	allow(ctx, "record")
}

// allow gives the operator the rights of a folder of config/berg until the spec ends.
func allow(ctx context.Context, folder string) {
	GinkgoHelper()
	kubectl := func(ctx context.Context, verb string, options ...string) {
		GinkgoHelper()
		command := exec.CommandContext(ctx, "kubectl", append([]string{verb, "-k", "../../../config/berg/" + folder}, options...)...)
		command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
		command.Env = os.Environ()
		Expect(command.Run()).To(Succeed())
	}
	kubectl(ctx, "apply")
	DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "delete", "--ignore-not-found", "--wait=false") }, NodeTimeout(deployed.ReactLimit))
}
