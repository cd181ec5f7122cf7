package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// manifestRecord is a manifest on disk. pkg/registry keeps blobs on disk but manifests in memory
// only, so each accepted manifest is written down here and put again at the next start.
type manifestRecord struct {
	Repository  string `json:"repository"`
	Reference   string `json:"reference"`
	ContentType string `json:"contentType"`
	Content     []byte `json:"content"`
}

// maxManifestSize is the size a registry has to accept at least, by the OCI distribution specification.
const maxManifestSize = 4 << 20

// keepManifests wraps a registry so that its manifests outlive the process. It first puts those
// found in dir.
func keepManifests(next http.Handler, dir string) (http.Handler, error) {
	if err := restoreManifests(next, dir); err != nil {
		return nil, fmt.Errorf("restore manifests: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repository, reference, ok := manifestPath(r.URL.Path)
		switch {
		case ok && r.Method == http.MethodPut:
			content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxManifestSize))
			if err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				return
			}
			record := manifestRecord{repository, reference, r.Header.Get("Content-Type"), content}
			answer := record.putTo(r, next)
			if answer.status == http.StatusCreated {
				if err := record.save(dir); err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
			}
			answer.sendTo(w)
		case ok && r.Method == http.MethodDelete:
			record := manifestRecord{Repository: repository, Reference: reference}
			if err := os.Remove(record.file(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	}), nil
}

// restoreManifests puts every record. An index is only accepted after what it lists, so records
// that are refused are tried again as long as a round brings one in.
func restoreManifests(registry http.Handler, dir string) error {
	pending, err := loadManifests(dir)
	if err != nil {
		return err
	}
	for len(pending) > 0 {
		var refused []manifestRecord
		for _, record := range pending {
			request, err := http.NewRequest(http.MethodPut, "/v2/"+record.Repository+"/manifests/"+record.Reference, nil)
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", record.ContentType)
			if record.putTo(request, registry).status != http.StatusCreated {
				refused = append(refused, record)
			}
		}
		if len(refused) == len(pending) {
			return fmt.Errorf("%s:%s in %s is not accepted again: remove the folder and push once more",
				refused[0].Repository, refused[0].Reference, dir)
		}
		pending = refused
	}
	return nil
}

func loadManifests(dir string) ([]manifestRecord, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	records := make([]manifestRecord, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &records[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return records, nil
}

func (m manifestRecord) putTo(request *http.Request, registry http.Handler) *heldResponse {
	request = request.Clone(request.Context())
	request.Body = io.NopCloser(bytes.NewReader(m.Content))
	answer := &heldResponse{header: http.Header{}, status: http.StatusOK}
	registry.ServeHTTP(answer, request)
	return answer
}

// save writes the record under its reference and under its digest: the registry answers to both,
// and the digest stays valid when the tag moves on.
func (m manifestRecord) save(dir string) error {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(m.Content))
	for _, reference := range []string{m.Reference, digest} {
		m.Reference = reference
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		temporary, err := os.CreateTemp(dir, "upload-*")
		if err != nil {
			return err
		}
		defer os.Remove(temporary.Name())
		_, err = temporary.Write(text)
		if err := errors.Join(err, temporary.Close()); err != nil {
			return err
		}
		if err := os.Rename(temporary.Name(), m.file(dir)); err != nil {
			return err
		}
	}
	return nil
}

func (m manifestRecord) file(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(m.Repository+"@"+m.Reference))))
}

// manifestPath splits /v2/<repository>/manifests/<reference>; a repository may hold slashes.
func manifestPath(path string) (repository, reference string, ok bool) {
	rest, found := strings.CutPrefix(path, "/v2/")
	if !found {
		return "", "", false
	}
	split := strings.LastIndex(rest, "/manifests/")
	if split <= 0 {
		return "", "", false
	}
	repository, reference = rest[:split], rest[split+len("/manifests/"):]
	return repository, reference, reference != "" && !strings.Contains(reference, "/")
}

// heldResponse keeps an answer back until the manifest is on disk: a client that was told
// "created" must find it after a crash.
type heldResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heldResponse) Header() http.Header         { return h.header }
func (h *heldResponse) WriteHeader(status int)      { h.status = status }
func (h *heldResponse) Write(b []byte) (int, error) { return h.body.Write(b) }

func (h *heldResponse) sendTo(w http.ResponseWriter) {
	for key, values := range h.header {
		w.Header()[key] = values
	}
	w.WriteHeader(h.status)
	// The client hanging up is its own affair: the manifest is stored.
	_, _ = w.Write(h.body.Bytes())
}
