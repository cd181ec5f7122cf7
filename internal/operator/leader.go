package operator

import (
	"context"
	"fmt"
	"time"

	coordinationapi "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/bergctf/berg-operator/internal/config"
)

// CheckLeader returns an error unless a replica leads now, as the Lease in the API server says. The clocks of this machine and
// of the replica may differ by the duration of the lease.
func CheckLeader(ctx context.Context, restConfig *rest.Config, process config.Process) error {
	leases, err := coordinationv1.NewForConfig(restConfig)
	if err != nil {
		return err
	}
	lease, err := leases.Leases(process.Namespace).Get(ctx, process.LeaseName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the lease %s in the namespace %s: %w: no replica has started; look at the pods of the operator", process.LeaseName, process.Namespace, err)
	}
	return leads(lease, time.Now())
}

// leads returns an error unless the holder of a lease has renewed it in time.
func leads(lease *coordinationapi.Lease, now time.Time) error {
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return fmt.Errorf("nothing holds the lease %s: no replica leads; look at the pods of the operator", lease.Name)
	}
	if age := now.Sub(lease.Spec.RenewTime.Time); age > 2*LeaseDuration {
		return fmt.Errorf("%s holds the lease %s and has not renewed it for %s: no replica leads; look at the pods of the operator",
			*lease.Spec.HolderIdentity, lease.Name, age.Round(time.Second))
	}
	return nil
}
