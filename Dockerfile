# An image with the program, authorities' certificates, and nothing else: no shell, no
# packages, no user but a number. Build it with
#
#     docker build --build-arg VERSION=1.2.3 --tag offsetproxy:1.2.3 .
#
# Any engine will do, for this machine's kind of processor or, with --platform, for
# another: what is compiled is cross-compiled.

# The version of Go that go.mod asks for.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
# Dependencies first: this layer is kept while only the program changes.
COPY go.mod go.sum ./
RUN go mod download
# .dockerignore says what of the repository there is.
COPY . .
# What `offsetproxy version` and the log's first line tell.
ARG VERSION=devel
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath \
    -ldflags "-s -w -X github.com/offsetproxy/offsetproxy/internal/version.number=$VERSION" \
    -o offsetproxy ./cmd/offsetproxy

FROM scratch
ARG VERSION=devel
LABEL org.opencontainers.image.title="offsetproxy" \
      org.opencontainers.image.description="A proxy for Apache Kafka that makes appends conditional" \
      org.opencontainers.image.source="https://github.com/offsetproxy/offsetproxy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
# For brokers whose certificates are of public authorities.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /src/offsetproxy /offsetproxy
# A number, so that Kubernetes can tell that it is not root (runAsNonRoot). The program
# writes to no file, so the root file system can be read-only.
USER 65532:65532
# Clients; metrics, health and status. Brokers' ports follow that of clients.
EXPOSE 9092 9400
ENTRYPOINT ["/offsetproxy"]
CMD ["--help"]
