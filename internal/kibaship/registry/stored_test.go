package registry

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// stored returns a repository with three images: a commit that was built twice, one with a version, and an index.
func stored(t *testing.T, host string) (*Repository, map[string]string) {
	t.Helper()
	repository, err := OpenRepository(host+"/kibaship/shop/web", nil, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	digests := map[string]string{}
	write := func(created time.Time, tags ...string) {
		t.Helper()
		image, err := mutate.CreatedAt(empty.Image, v1.Time{Time: created})
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags {
			if err := remote.Write(repository.Name.Tag(tag), image); err != nil {
				t.Fatal(err)
			}
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[tags[0]] = digest.String()
	}
	write(time.Unix(1000, 0), "first", "first-again")
	write(time.Unix(2000, 0), "second")
	if err := remote.WriteIndex(repository.Name.Tag("index"), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: empty.Image})); err != nil {
		t.Fatal(err)
	}
	return repository, digests
}

// registries returns servers of the protocol: one in this process, and the one that REGISTRY names.
func registries(t *testing.T) map[string]string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	all := map[string]string{"in memory": strings.TrimPrefix(server.URL, "http://")}
	if host := os.Getenv("REGISTRY"); host != "" {
		all[host] = host
	}
	return all
}

func TestImagesAreListedDeletedAndPutBack(t *testing.T) {
	for title, host := range registries(t) {
		t.Run(title, func(t *testing.T) {
			ctx := context.Background()
			repository, digests := stored(t, host)
			tagged, err := repository.Tagged(ctx)
			if err != nil || len(tagged) != 3 {
				t.Fatalf("%v, %v", tagged, err)
			}
			tags := tagged[digests["first"]]
			if slices.Sort(tags); !slices.Equal(tags, []string{"first", "first-again"}) {
				t.Errorf("the tags of an image are %v", tags)
			}
			for digest, tags := range tagged {
				want := map[string]int64{"first": 1000, "second": 2000}[tags[0]]
				if created, err := repository.Created(ctx, digest); err != nil || want != 0 && created.Unix() != want || want == 0 && !created.IsZero() {
					t.Errorf("%v was created %s, %v", tags, created, err)
				}
			}

			image := Stored{Digest: digests["first"], Tags: tags}
			restore, err := repository.Delete(ctx, image)
			if err != nil {
				t.Fatal(err)
			}
			if after, err := repository.Tagged(ctx); err != nil || len(after) != 2 || len(after[image.Digest]) != 0 {
				t.Errorf("after the deletion: %v, %v", after, err)
			}
			if created, err := repository.Created(ctx, image.Digest); err != nil || !created.IsZero() {
				t.Errorf("it is still there, created %s, %v", created, err)
			}
			if _, err := repository.Delete(ctx, image); err == nil || RefusesDeletion(err) {
				t.Errorf("an image that is gone: %v", err)
			}

			// A build has moved one of its tags since.
			moved, err := remote.Image(repository.Name.Digest(digests["second"]))
			if err != nil {
				t.Fatal(err)
			}
			if err := remote.Tag(repository.Name.Tag("first"), moved); err != nil {
				t.Fatal(err)
			}
			if err := restore(ctx); err != nil {
				t.Fatal(err)
			}
			for tag, want := range map[string]string{"first": digests["second"], "first-again": image.Digest} {
				if digest, err := repository.Digest(ctx, tag); err != nil || digest != want {
					t.Errorf("tag %s refers to %s, %v, want %s", tag, digest, err, want)
				}
			}
			if created, err := repository.Created(ctx, image.Digest); err != nil || created.Unix() != 1000 {
				t.Errorf("it was not put back: %s, %v", created, err)
			}
		})
	}
}

func TestARepositoryThatDoesNotExistHasNoImages(t *testing.T) {
	for title, host := range registries(t) {
		repository, err := OpenRepository(host+"/kibaship/shop/none", nil, http.DefaultTransport)
		if err != nil {
			t.Fatal(err)
		}
		if tagged, err := repository.Tagged(context.Background()); err != nil || len(tagged) != 0 {
			t.Errorf("%s: %v, %v", title, tagged, err)
		}
	}
}

func TestARegistryMayRefuseDeletions(t *testing.T) {
	const unsupported = `{"errors":[{"code":"UNSUPPORTED","message":"s3cret words of the registry"}]}`
	for title, tc := range map[string]struct {
		status int
		body   string
		want   bool
	}{
		"not at all":       {http.StatusMethodNotAllowed, unsupported, true},
		"without a reason": {http.StatusMethodNotAllowed, "", true},
		"as a bad request": {http.StatusBadRequest, unsupported, true},
		"for this login":   {http.StatusForbidden, "", true},
		"it is down":       {http.StatusBadGateway, "", false},
		"it is busy":       {http.StatusTooManyRequests, "", false},
	} {
		store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodDelete {
				store.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		}))
		repository, digests := stored(t, strings.TrimPrefix(server.URL, "http://"))
		_, err := repository.Delete(context.Background(), Stored{Digest: digests["first"]})
		if err == nil || RefusesDeletion(err) != tc.want || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", title, err)
		}
		server.Close()
	}
}
