package expose

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/internal/kit/connection"
)

// scheme has the three kinds that are needed: all of Kubernetes' kinds would make the program three times as large.
var scheme = runtime.NewScheme()

func init() {
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.Service{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
}

// object is a pod, a Secret or a Service.
type object interface {
	runtime.Object
	metav1.Object
}

// cluster calls the API server.
type cluster struct {
	*rest.RESTClient
	namespace string
}

func newCluster(config *rest.Config, namespace string) (cluster, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	made, err := rest.RESTClientFor(c)
	return cluster{made, namespace}, err
}

func resourceName(o object) string {
	switch o.(type) {
	case *corev1.Secret:
		return "secrets"
	case *corev1.Service:
		return "services"
	default:
		return "pods"
	}
}

// find returns the object that has the name and the kind of o, nil if there is none. It is decoded into an empty object: labels and
// owners that it does not have must not be those of o.
func (c cluster) find(ctx context.Context, o object) (object, error) {
	found, err := c.Get().Namespace(c.namespace).Resource(resourceName(o)).Name(o.GetName()).Do(ctx).Get()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.(object), nil
}

func (c cluster) create(ctx context.Context, o object) error {
	err := c.Post().Namespace(c.namespace).Resource(resourceName(o)).Body(o).Do(ctx).Into(o)
	if _, isSecret := o.(*corev1.Secret); isSecret {
		err = connection.WithoutMessage(err)
	}
	return err
}

// remove deletes an object, unless another one has its name by now.
func (c cluster) remove(ctx context.Context, o object) error {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	uid, soon := o.GetUID(), int64(1)
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if _, isPod := o.(*corev1.Pod); isPod {
		// With zero, the pod would leave the API, and its network policy with it, before its processes end.
		options.GracePeriodSeconds = &soon
	}
	err := c.Delete().Namespace(c.namespace).Resource(resourceName(o)).Name(o.GetName()).Body(options).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// await watches a pod until done accepts it. A pod that is deleted is nil.
func (c cluster) await(ctx context.Context, name string, done func(*corev1.Pod) (bool, error)) error {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	for {
		pods := &corev1.PodList{}
		err := c.Get().Namespace(c.namespace).Resource("pods").VersionedParams(&metav1.ListOptions{FieldSelector: only}, metav1.ParameterCodec).Do(ctx).Into(pods)
		if err != nil {
			return err
		}
		var pod *corev1.Pod
		if len(pods.Items) > 0 {
			pod = &pods.Items[0]
		}
		if ok, err := done(pod); ok || err != nil {
			return err
		}
		events, err := c.Get().Namespace(c.namespace).Resource("pods").VersionedParams(
			&metav1.ListOptions{FieldSelector: only, ResourceVersion: pods.ResourceVersion, Watch: true}, metav1.ParameterCodec).Watch(ctx)
		if err != nil {
			return err
		}
		for event := range events.ResultChan() {
			pod, isPod := event.Object.(*corev1.Pod)
			if !isPod {
				break // the list is too old: read it again
			}
			if event.Type == "DELETED" {
				pod = nil
			}
			if ok, err := done(pod); ok || err != nil {
				events.Stop()
				return err
			}
		}
		events.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// explain adds the remedy to an error of the API server.
func (c cluster) explain(err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w. You need the rights to get, list, watch, create and delete pods, to get, create and delete secrets and services, and to create pods/portforward in namespace %s", err, c.namespace)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: create it, or choose another namespace with --namespace", err)
	default:
		return err
	}
}

// isFinal reports whether an error stays until a person does something.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}
