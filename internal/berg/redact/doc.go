// Package redact removes flags from texts before they are shown.
package redact
