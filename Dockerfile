# The operator's image: static programs on nothing, the operator and the tunnel proxy.
#
#   make docker-build IMG=<image>                     this machine's platform
#   make docker-buildx IMG=<image>                    all platforms, pushed
#
# `make image` makes an image of the same content without a Docker daemon.
ARG GO_VERSION=1.26
# Releases are made without it. To build from a certain content, give the image by digest: --build-arg GO_IMAGE=...@sha256:...
ARG GO_IMAGE=docker.io/library/golang:${GO_VERSION}
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS=linux
ARG TARGETARCH
WORKDIR /src

# Modules in a layer of their own: they change less often than the sources.
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN --mount=type=cache,target=/go/pkg/mod go mod download

COPY api/ api/
COPY cmd/ cmd/
COPY internal/ internal/
COPY deploy/ deploy/
ARG VERSION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w -X main.version=${VERSION}" -o /manager ./cmd/berg-operator && \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w -X main.version=${VERSION}" -o /berg-tunnel ./cmd/berg-tunnel && \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w -X main.version=${VERSION}" -o /berg-api ./cmd/berg-api && \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w -X main.version=${VERSION}" -o /berg-gate ./cmd/berg-gate

# The licences of the linked modules ask for their texts next to the programs.
COPY LICENSE ./
COPY hack/tools/sbom/ hack/tools/sbom/
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    cd hack/tools/sbom && \
    go run . --name berg-operator --version ${VERSION} --output /bill.json --notices /operator.txt /manager /berg-tunnel && \
    go run . --name berg-api --version ${VERSION} --output /bill.json --notices /api.txt /berg-api && \
    go run . --name berg-gate --version ${VERSION} --output /bill.json --notices /gate.txt /berg-gate

# The platform API is an image of its own: docker build --target api
FROM scratch AS api
COPY --from=build --chmod=0555 /berg-api /berg-api
COPY --from=build --chmod=0444 /api.txt /NOTICES.txt
USER 65532:65532
ENTRYPOINT ["/berg-api"]

# So is the gate: docker build --target gate
FROM scratch AS gate
COPY --from=build --chmod=0555 /berg-gate /berg-gate
COPY --from=build --chmod=0444 /gate.txt /NOTICES.txt
USER 65532:65532
ENTRYPOINT ["/berg-gate"]

# No shell, no libc, no certificates: the API server's CA comes with the service account,
# and public registries are believed by those that are compiled in.
FROM scratch
COPY --from=build --chmod=0555 /manager /manager
COPY --from=build --chmod=0555 /berg-tunnel /berg-tunnel
COPY --from=build --chmod=0444 /operator.txt /NOTICES.txt
USER 65532:65532
ENTRYPOINT ["/manager"]
