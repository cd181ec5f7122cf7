# The image of our own tests of the bundle, which operator-sdk scorecard runs: one
# static program on nothing.
#
#
# `make scorecard-build` makes an image of the same content without Docker.
ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM docker.io/library/golang:${GO_VERSION} AS build
ARG TARGETOS=linux
ARG TARGETARCH
WORKDIR /src

COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN --mount=type=cache,target=/go/pkg/mod go mod download

COPY api/ api/
COPY cmd/ cmd/
# The tests look up there whether a condition is explained.
COPY docs/ docs/
COPY internal/ internal/
COPY test/scorecard/ test/scorecard/
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w" -o /scorecard ./test/scorecard

FROM scratch
COPY --from=build --chmod=0555 /scorecard /scorecard
USER 65532:65532
ENTRYPOINT ["/scorecard"]
