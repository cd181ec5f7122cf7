// Command platforms is a complete platform on one page: players start an instance of a challenge, ask
// where it is, and end it, over HTTP. It answers their questions from one watch, which costs the API
// server nothing. A real platform identifies the player by a session.
//
//	PUT    /instances/PLAYER/CHALLENGE            starts it
//	GET    /instances/PLAYER/CHALLENGE            where to connect, or what is wrong
//	POST   /instances/PLAYER/CHALLENGE?timeout=2h extends it to two hours in total
//	DELETE /instances/PLAYER/CHALLENGE            ends it
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const namespace = "berg"

var listen = flag.String("listen", "127.0.0.1:8080", "address to listen on")

type platform struct {
	// api writes, instances is the watch.
	api       client.Client
	instances cache.Cache
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := bergv1.AddToScheme(scheme); err != nil {
		return err
	}
	rc, err := config.GetConfig() // of the pod, or the kubeconfig
	if err != nil {
		return err
	}
	p := platform{}
	if p.api, err = client.New(rc, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if p.instances, err = cache.New(rc, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}}); err != nil {
		return err
	}
	if _, err := p.instances.GetInformer(ctx, &bergv1.ChallengeInstance{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	go func() { _ = p.instances.Start(ctx) }() // until ctx ends; it reconnects automatically
	if !p.instances.WaitForCacheSync(ctx) {
		return ctx.Err()
	}

	const path = " /instances/{player}/{challenge}"
	mux := http.NewServeMux()
	mux.HandleFunc(http.MethodPut+path, p.start)
	mux.HandleFunc(http.MethodGet+path, p.show)
	mux.HandleFunc(http.MethodPost+path, p.extend)
	mux.HandleFunc(http.MethodDelete+path, p.end)
	server := http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// asked returns the instance that a request is about.
func asked(r *http.Request) *bergv1.ChallengeInstance {
	player, challenge := r.PathValue("player"), r.PathValue("challenge")
	return &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: player + "-" + challenge},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge},
			OwnerID:      uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://ctf.example.com/players/"+player)).String(),
			Flag:         "flag{" + uuid.NewString() + "}",
			Timeout:      "1h",
		},
	}
}

func (p platform) start(w http.ResponseWriter, r *http.Request) {
	err := p.api.Create(r.Context(), asked(r))
	if apierrors.IsAlreadyExists(err) {
		err = nil // a second click
	}
	answer(w, err)
}

func (p platform) extend(w http.ResponseWriter, r *http.Request) {
	answer(w, p.patch(r, map[string]string{"timeout": r.FormValue("timeout")}))
}

func (p platform) end(w http.ResponseWriter, r *http.Request) {
	err := p.patch(r, map[string]string{"terminationReason": string(bergv1.TerminationUserRequest)})
	answer(w, client.IgnoreNotFound(err))
}

func (p platform) patch(r *http.Request, spec map[string]string) error {
	body, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	return p.api.Patch(r.Context(), asked(r), client.RawPatch(types.MergePatchType, body))
}

// seen contains what a player may know of an instance. It must not contain the flag.
type seen struct {
	Phase     bergv1.Phase `json:"phase"`
	URLs      []string     `json:"urls"`
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	Cause     bergv1.Cause `json:"cause,omitempty"` // the page has a sentence for each
	Problem   string       `json:"problem,omitempty"`
}

func (p platform) show(w http.ResponseWriter, r *http.Request) {
	i := asked(r)
	if err := p.instances.Get(r.Context(), client.ObjectKeyFromObject(i), i); err != nil {
		answer(w, err)
		return
	}
	is := seen{Phase: i.Status.Phase, Cause: i.Status.Cause, ExpiresAt: i.Status.ExpiresAt}
	for _, service := range i.Status.Services {
		is.URLs = append(is.URLs, service.URL)
	}
	for _, c := range i.Status.Conditions {
		if is.Problem == "" && c.Status == metav1.ConditionFalse && c.Type != bergv1.ConditionNamespaceDeleted && c.Type != bergv1.ConditionHealthy {
			is.Problem = fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(is) // the client may have disconnected
}

// answer forwards the answer of the API server.
func answer(w http.ResponseWriter, err error) {
	if err == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	code := http.StatusBadGateway
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	http.Error(w, http.StatusText(code), code)
}
