package operator

import (
	"strings"
	"testing"
	"time"

	coordinationapi "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLeads(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		name, holder string
		age          time.Duration
		wrong        string
	}{
		{"renewed just now", "a", time.Second, ""},
		{"by a clock that is ahead", "a", -10 * time.Second, ""},
		{"by a clock that is behind", "a", 2 * LeaseDuration, ""},
		{"expired", "a", 2*LeaseDuration + time.Second, "not renewed it for 31s"},
		{"released", "", time.Second, "nothing holds"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := leads(&coordinationapi.Lease{Spec: coordinationapi.LeaseSpec{
				HolderIdentity: ptr.To(test.holder), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-test.age))),
			}}, now)
			switch {
			case test.wrong == "" && err != nil:
				t.Error(err)
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("got %v, want %q", err, test.wrong)
			}
		})
	}
	if leads(&coordinationapi.Lease{}, now) == nil {
		t.Error("an empty lease has a leader")
	}
}
