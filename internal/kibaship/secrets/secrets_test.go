package secrets

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
)

// An Application that needs no Secret any more must not end the watch by which a Deployment finds
// out that the one it waits for has come.
func TestAWatchEndsWithItsLastUser(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &Watches{client: metadatafake.NewSimpleMetadataClient(scheme), lifetime: t.Context(), end: func() {}, open: map[string]*watch{}}
	w.Missing("deployment", "ns", nil)
	w.Missing("application", "ns", nil)
	w.Missing("application", "ns", nil)
	w.Close("unknown", "ns")
	w.Close("application", "ns")
	if w.open["ns"] == nil {
		t.Fatal("the watch ended with one of two users")
	}
	w.Close("application", "ns")
	w.Close("application", "elsewhere")
	if w.open["ns"] == nil {
		t.Fatal("one user counted for two")
	}
	w.Close("deployment", "ns")
	if w.open["ns"] != nil {
		t.Error("the watch outlives its users")
	}
}
