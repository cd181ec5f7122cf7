# Every version that is not in a go.mod file. `make versions` prints them all.

# The operator. `make next-version VERSION=...` changes this line.
VERSION ?= 0.1.0

# Images. IMAGE_TAG_BASE names them without a tag.
IMAGE_TAG_BASE ?= ghcr.io/bergctf/berg-operator
IMG            ?= $(IMAGE_TAG_BASE):v$(VERSION)
BUNDLE_IMG     ?= $(IMAGE_TAG_BASE)-bundle:v$(VERSION)
CATALOG_IMG    ?= $(IMAGE_TAG_BASE)-catalog:v$(VERSION)
# The bundle of another package is PACKAGE_REGISTRY/<package>-bundle.
PACKAGE_REGISTRY ?= $(patsubst %/,%,$(dir $(IMAGE_TAG_BASE)))
SCORECARD_IMG  ?= $(IMAGE_TAG_BASE)-scorecard:v$(VERSION)
GATE_IMG       ?= ghcr.io/bergctf/berg-gate:v$(VERSION)
API_IMG        ?= ghcr.io/bergctf/berg-api:v$(VERSION)

# Channels of the Operator Lifecycle Manager that this version is offered in: all
# for a final one, candidate for a pre-release such as 0.2.0-rc.1.
comma           := ,
CHANNELS        ?= candidate$(if $(findstring -,$(VERSION)),,$(comma)stable)
DEFAULT_CHANNEL ?= stable

# What the pinned operator-sdk reports as the Kubernetes it was made for.
OPERATOR_SDK_KUBERNETES_VERSION := v1.33.1

# Images that profile olm of test/cluster brings with it. The second one is where
# operator-sdk expects a shell when it upgrades a bundle.
OPM_IMG     := registry.berg.test/opm:1
BUSYBOX_IMG := registry.access.redhat.com/ubi9/ubi:9.7

# Platforms of the released image.
PLATFORMS ?= linux/amd64,linux/arm64
