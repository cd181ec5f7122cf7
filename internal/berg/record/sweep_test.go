package record

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

var noon = time.Date(2026, 7, 11, 12, 0, 0, 0, time.UTC)

// stores returns a record that was written some minutes before noon, and is kept for an hour.
func stores(name string, minutesAgo int, size int, modify ...func(*metav1.PartialObjectMetadata)) metav1.PartialObjectMetadata {
	made := noon.Add(-time.Duration(minutesAgo) * time.Minute)
	r := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Time{Time: made},
		Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentRecord},
		Annotations: map[string]string{
			bergv1.AnnotationInstanceUID: name, bergv1.AnnotationRecordSize: strconv.Itoa(size),
			bergv1.AnnotationDeleteAt: made.Add(time.Hour).Format(time.RFC3339),
		},
	}}
	for _, m := range modify {
		m(&r)
	}
	return r
}

func annotated(key, value string) func(*metav1.PartialObjectMetadata) {
	return func(r *metav1.PartialObjectMetadata) { r.Annotations[key] = value }
}

func TestSweep(t *testing.T) {
	deleted := func(r *metav1.PartialObjectMetadata) { r.DeletionTimestamp = &metav1.Time{Time: noon} }
	foreign := func(r *metav1.PartialObjectMetadata) { delete(r.Labels, bergv1.LabelComponent) }
	for name, tc := range map[string]struct {
		all  []metav1.PartialObjectMetadata
		want []string
		next time.Duration
	}{
		"none":                        {},
		"none is over":                {[]metav1.PartialObjectMetadata{stores("a", 10, 1), stores("b", 20, 1)}, nil, 40 * time.Minute},
		"one is over to the second":   {[]metav1.PartialObjectMetadata{stores("a", 60, 1), stores("b", 59, 1)}, []string{"a"}, time.Minute},
		"one is kept longer":          {[]metav1.PartialObjectMetadata{stores("a", 90, 1, annotated(bergv1.AnnotationDeleteAt, "2026-07-11T13:00:00Z"))}, nil, time.Hour},
		"a time that is none":         {[]metav1.PartialObjectMetadata{stores("a", 90, 1, annotated(bergv1.AnnotationDeleteAt, "never"))}, nil, 30 * time.Minute},
		"more than three":             {[]metav1.PartialObjectMetadata{stores("a", 1, 1), stores("b", 4, 1), stores("c", 2, 1), stores("d", 3, 1), stores("e", 5, 1)}, []string{"b", "e"}, 57 * time.Minute},
		"more than there is room for": {[]metav1.PartialObjectMetadata{stores("a", 1, 600), stores("b", 2, 300), stores("c", 3, 200)}, []string{"c"}, 58 * time.Minute},
		"a small one behind does not stay for its size": {[]metav1.PartialObjectMetadata{stores("a", 1, 600), stores("b", 2, 600), stores("c", 3, 1)}, []string{"b", "c"}, 59 * time.Minute},
		"one that hides its size":                       {[]metav1.PartialObjectMetadata{stores("a", 1, 1), stores("b", 2, 1, annotated(bergv1.AnnotationRecordSize, "-5"))}, []string{"b"}, 59 * time.Minute},
		"those of others":                               {[]metav1.PartialObjectMetadata{stores("a", 90, 1, foreign), stores("b", 90, 1, annotated(bergv1.AnnotationInstanceUID, "c"))}, nil, 0},
		"one that goes already":                         {[]metav1.PartialObjectMetadata{stores("a", 90, 1, deleted)}, nil, 0},
	} {
		cfg := config.Record{Retention: 2 * time.Hour, Limit: 3, Size: resource.MustParse("1000")}
		over, next := sweep(tc.all, cfg, noon)
		var got []string
		for _, r := range over {
			got = append(got, r.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) || next != tc.next {
			t.Errorf("%s: %v, next in %s; want %v, %s", name, got, next, tc.want, tc.next)
		}
	}
}

// However many there are: after a sweep no bound is broken, and a second one finds nothing.
func TestSweepIsDoneImmediately(t *testing.T) {
	cfg := config.Record{Retention: time.Hour, Limit: 50, Size: resource.MustParse("20000")}
	var all []metav1.PartialObjectMetadata
	for i := range 300 {
		all = append(all, stores(fmt.Sprintf("r%03d", i), i*7%90, i*13%997))
	}
	over, _ := sweep(all, cfg, noon)
	gone := map[string]bool{}
	for _, r := range over {
		gone[r.Name] = true
	}
	left := slices.DeleteFunc(slices.Clone(all), func(r metav1.PartialObjectMetadata) bool { return gone[r.Name] })
	var sum int64
	for i := range left {
		sum += sizeAsWritten(&left[i])
	}
	if again, _ := sweep(left, cfg, noon); len(again) > 0 || len(left) == 0 || len(left) > cfg.Limit || sum > cfg.Size.Value() {
		t.Errorf("%d are left with %d bytes, and %d go later", len(left), sum, len(again))
	}
}
