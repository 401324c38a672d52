# One image for servers, workers and trials.
#   docker build --build-arg COMMIT=$(git rev-parse HEAD) -t raise-rpm .
#   docker run --rm raise-rpm doctor
# TORCH_INDEX picks another build of torch, e.g. https://download.pytorch.org/whl/cpu
FROM python:3.11-slim-bookworm AS build
ARG TORCH_INDEX=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY raise_model raise_model
COPY artifacts artifacts
COPY tune_spaces tune_spaces
COPY flows flows
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir -c constraints.txt \
       ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} '.[cluster]'

FROM python:3.11-slim-bookworm
ARG COMMIT=
ENV PATH=/opt/venv/bin:$PATH \
    RAISE_COMMIT=$COMMIT \
    RAISE_HOME=/var/lib/raise \
    PYTHONUNBUFFERED=1
# KubeRay asks the nodes for their health by wget.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 raise \
    && mkdir -p /var/lib/raise && chown raise:raise /var/lib/raise
COPY --from=build /opt/venv /opt/venv
COPY prefect.yaml deploy/worker.sh /opt/raise/
# By number: what asks for a user other than root cannot look names up.
USER 1000
WORKDIR /home/raise
ENTRYPOINT ["raise-rpm"]
CMD ["--help"]
