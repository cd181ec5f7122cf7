# The catalog's image: files only. The cluster's own opm serves them, so the
# CatalogSource must ask for that:
#
#   spec:
#     sourceType: grpc
#     image: ghcr.io/bergctf/berg-operator-catalog:v0.1.0
#     grpcPodConfig:
#       securityContextConfig: restricted
#       extractContent:
#         catalogDir: /configs
#
# `make catalog-build` makes an image of the same content without Docker.
FROM scratch
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY catalog/berg-operator /configs/berg-operator
COPY catalog/container-tunnel-operator /configs/container-tunnel-operator
COPY catalog/hexactf-operator /configs/hexactf-operator
COPY catalog/kibaship-operator /configs/kibaship-operator
COPY catalog/quix-environment-operator /configs/quix-environment-operator
