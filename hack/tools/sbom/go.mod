module github.com/bergctf/berg-operator/hack/tools/sbom

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/licensecheck v0.3.1
	github.com/google/uuid v1.6.0
	golang.org/x/mod v0.43.0
)
