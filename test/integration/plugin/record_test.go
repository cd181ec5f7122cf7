package plugin

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var _ = Describe("record", func() {
	It("shows the record of an instance, and reports a missing one", func(ctx context.Context) {
		ns, records := bergtest.Namespace(ctx), apiserver.Namespace(ctx)
		for name, reason := range map[string]bergv1.EndReason{"uid-1": "Timeout", "uid-2": "AdminTermination"} {
			r := &bergv1.ChallengeInstanceRecord{ObjectMeta: metav1.ObjectMeta{
				Namespace: records, Name: name,
				Annotations: map[string]string{bergv1.AnnotationInstance: ns + "/" + name + "-web", bergv1.AnnotationChallenge: "web"},
			}, Spec: bergv1.ChallengeInstanceRecordSpec{
				Instance: bergv1.RecordedInstance{Namespace: ns, Name: name + "-web", UID: name}, ChallengeRef: bergv1.ChallengeReference{Name: "web"},
				OwnerID: "owner", Reason: reason, EndedAt: metav1.Now(),
				Containers: []bergv1.RecordedContainer{{Name: "web", Pod: "web-1", State: "Running", Log: "last words of " + name + "\n"}},
			}}
			Expect(apiserver.Client.Create(ctx, r)).To(Succeed())
		}
		one := run(ctx, "record", "uid-1-web", "-n", ns, "--records", records)
		Expect(one.code).To(Equal(0))
		Expect(one.out).To(And(ContainSubstring(": Timeout"), ContainSubstring("last words of uid-1"), Not(ContainSubstring("uid-2"))))
		Expect(decode[bergv1.ChallengeInstanceRecord](run(ctx, "record", "uid-2", "-n", ns, "--records", records, "-o", "json").out).Spec.Reason).
			To(BeEquivalentTo("AdminTermination"))
		Expect(run(ctx, "records", "-n", ns, "--records", records).out).To(And(ContainSubstring("uid-1-web"), ContainSubstring("uid-2-web")))
		Expect(run(ctx, "__complete", "record", "--records", records, "-n", ns, "uid").out).To(And(ContainSubstring("uid-1-web"), ContainSubstring("uid-2-web")))
		Expect(run(ctx, "record", "missing", "-n", ns, "--records", records).code).To(Equal(3))
		Expect(decode[[]any](run(ctx, "records", "-n", "default", "--records", records, "-o", "json").out)).To(BeEmpty())
	})
})
