// Package docs holds the tests that keep what people read in step with what the
// operator does: the descriptions of the CRDs, the pages in docs/ and the files
// for monitoring.
package docs
