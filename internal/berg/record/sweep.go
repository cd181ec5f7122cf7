package record

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// isOurs reports whether the operator has written a record: others are neither counted nor
// deleted.
func isOurs(r *metav1.PartialObjectMetadata) bool {
	return r.Labels[bergv1.LabelManagedBy] == bergv1.ManagedBy && r.Labels[bergv1.LabelComponent] == bergv1.ComponentRecord &&
		r.Annotations[bergv1.AnnotationInstanceUID] == r.Name
}

// deleteAt is when a record is to be deleted.
func deleteAt(r *metav1.PartialObjectMetadata, cfg config.Record) time.Time {
	if deletion, err := time.Parse(time.RFC3339, r.Annotations[bergv1.AnnotationDeleteAt]); err == nil {
		return deletion
	}
	return r.CreationTimestamp.Add(cfg.Retention)
}

// sizeAsWritten is how large a record is. One without the annotation counts as the largest:
// removing the annotation gains no space.
func sizeAsWritten(r *metav1.PartialObjectMetadata) int64 {
	size, err := strconv.ParseInt(r.Annotations[bergv1.AnnotationRecordSize], 10, 64)
	if err != nil || size < 0 || size > maxRecord {
		return maxRecord
	}
	return size
}

// sweep returns the records that are over now: expired ones, and the oldest beyond the maximum
// number. next is the time until the next one is over, zero if there is none. It looks at the metadata alone, in which the
// operator has written when and how large.
func sweep(all []metav1.PartialObjectMetadata, cfg config.Record, now time.Time) (over []*metav1.PartialObjectMetadata, next time.Duration) {
	var kept []*metav1.PartialObjectMetadata
	for i := range all {
		switch r := &all[i]; {
		case !isOurs(r) || r.DeletionTimestamp != nil:
		case !now.Before(deleteAt(r, cfg)):
			over = append(over, r)
		default:
			kept = append(kept, r)
		}
	}
	slices.SortFunc(kept, func(a, b *metav1.PartialObjectMetadata) int { // newest first
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	remaining, n := cfg.Size.Value(), 0
	for _, r := range kept {
		remaining -= sizeAsWritten(r)
		if n == cfg.Limit || remaining < 0 {
			break
		}
		n++
	}
	over = append(over, kept[n:]...)
	for _, r := range kept[:n] {
		if left := deleteAt(r, cfg).Sub(now); next == 0 || left < next {
			next = left
		}
	}
	return over, next
}
