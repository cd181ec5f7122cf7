package hook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

const (
	// maxBody is more than a push with thousands of commits has.
	maxBody = 5 << 20
	// writeTime bounds the write of an annotation.
	writeTime = 5 * time.Second
	// One Application gets so many webhooks in a second, and in a burst: more would change nothing sooner.
	pushRate, pushBurst = 1, 20
	// A body that an Application had among its last maxSeen ones is admitted at this rate. It is a repeated webhook, or a branch that was
	// set back and forth; and it takes nothing from the rate of others.
	repeatRate, maxSeen = 0.1, 64
	// maxLimited is how many Applications are limited one by one.
	maxLimited = 4096
)

// Receiver answers webhooks.
type Receiver struct {
	// KeyFile has the key of all secrets. It is read for each request, so that a new key counts immediately.
	KeyFile string
	Client  dynamic.Interface
	Clock   clock.PassiveClock
	Log     *slog.Logger

	// mu guards limits and all that it holds.
	mu     sync.Mutex
	limits *lru.Cache // of *limit, by target
}

// received counts webhooks.
var received = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kibaship_webhooks_total",
	Help: "Webhooks by result: pushed, ignored because they announce no push, refused, limited, gone because the Application is, or failed.",
}, []string{"result"})

// answer is what a request gets. The texts say nothing that a stranger could not know.
type answer struct {
	result string
	status int
	text   string
}

var (
	refusal     = answer{"refused", http.StatusUnauthorized, "the webhook has no valid signature or token for this address"}
	tooLarge    = answer{"refused", http.StatusRequestEntityTooLarge, "the body is too large"}
	unavailable = answer{"failed", http.StatusServiceUnavailable, "the webhook was not handled: send it again"}
)

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	a := r.handle(w, q)
	received.WithLabelValues(a.result).Inc()
	if a.result == refusal.result {
		ports.Refuse(w, q)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status)
	_, _ = fmt.Fprintln(w, a.text)
}

// The order is of importance: nothing is written, and no limit of an Application is used up, before the signature is checked. So
// a stranger cannot use up what an Application may send.
func (r *Receiver) handle(w http.ResponseWriter, q *http.Request) answer {
	if q.ContentLength > maxBody {
		return tooLarge
	}
	content, err := readKey(r.KeyFile)
	if err != nil {
		r.Log.Error("webhooks cannot be checked", "error", err)
		return unavailable
	}
	target := parse(q.URL.Path)
	digest, ok, err := Derive(content, target.path()).key().verify(q.Header, http.MaxBytesReader(w, q.Body, maxBody), r.Clock.Now())
	if err != nil {
		return tooLarge // or it did not arrive in time
	}
	if !ok || q.Method != http.MethodPost {
		return refusal
	}
	ports.Trust(q.Context())
	switch {
	case !isPush(q.Header):
		return answer{"ignored", http.StatusOK, "this event announces no push"}
	case !r.allow(target, digest):
		return answer{"limited", http.StatusTooManyRequests, "there are too many webhooks for this Application"}
	}
	return r.push(q.Context(), target, hex.EncodeToString(digest[:8]))
}

// readKey returns the key of all secrets.
func readKey(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err == nil && len(content) < sha256.Size {
		err = fmt.Errorf("%s: the key has less than %d bytes: delete the Secret %s, and start the operator again", file, sha256.Size, KeySecret)
	}
	return content, err
}

// push has the operator look for new commits. The value stands for the body: a repeated webhook changes nothing.
func (r *Receiver) push(ctx context.Context, to target, value string) answer {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		// The UID in the patch makes the API server refuse it for another Application of the same name.
		"uid": to.uid, "annotations": map[string]any{kibashipv1.AnnotationPushed: value},
	}})
	if err != nil {
		return unavailable
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err = r.Client.Resource(kibashipv1.GroupVersion.WithResource("applications")).Namespace(to.namespace).
		Patch(ctx, to.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kibaship-pushes"})
	switch {
	case err == nil:
		return answer{"pushed", http.StatusAccepted, "the repository will be asked for new commits"}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err): // another UID
		return answer{"gone", http.StatusGone, "the Application of this webhook was deleted: delete the webhook"}
	default:
		r.Log.Error("the annotation of an Application cannot be written", "namespace", to.namespace, "application", to.name, "error", err)
		return unavailable
	}
}

// limit limits the webhooks of one Application.
type limit struct {
	fresh, repeated *rate.Limiter
	seen            *lru.Cache // of digests of bodies
}

// allow reports whether an Application may get one more webhook, with a body of that digest.
func (r *Receiver) allow(to target, digest [sha256.Size]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limits == nil {
		r.limits = lru.New(maxLimited)
	}
	known, ok := r.limits.Get(to)
	if !ok {
		known = &limit{rate.NewLimiter(pushRate, pushBurst), rate.NewLimiter(repeatRate, 1), lru.New(maxSeen)}
		r.limits.Add(to, known)
	}
	l, now := known.(*limit), r.Clock.Now()
	if _, repeated := l.seen.Get(digest); repeated {
		return l.repeated.AllowN(now, 1)
	}
	allowed := l.fresh.AllowN(now, 1)
	if allowed {
		l.seen.Add(digest, nil)
	}
	return allowed
}
