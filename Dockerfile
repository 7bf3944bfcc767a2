# One image for GPU and CPU.  `docker run IMAGE` runs the smoke profile; see README.md and docs/SCALE.md for the others.
# torch's default wheel brings its own CUDA, so that the base is plain Python and there is no second copy.
# The tag names one release; with its digest the build is the same bytes for ever:
#   --build-arg BASE_DIGEST=@sha256:...   (docker buildx imagetools inspect python:3.11.13-slim-bookworm)
ARG BASE_IMAGE=python:3.11.13-slim-bookworm
ARG BASE_DIGEST=""
FROM ${BASE_IMAGE}${BASE_DIGEST}
ARG BASE_IMAGE
ARG BASE_DIGEST

# Options for pip: a CPU build, an older CUDA, a mirror of your own; and the file of packages, requirements-hashes.txt to
# accept nothing but the files that PyPI had (docs/SCALE.md has both commands).
ARG PIP_ARGS=""
ARG REQUIREMENTS=requirements.txt

# tini, a small init as process 1: it hands signals on to all processes of a run, so that `docker stop` ends it at once.
# gcc and the C library's headers: Triton builds the launchers of compiled GPU kernels with them.
# rdma-core and what it drives: NCCL between machines over InfiniBand.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends tini gcc libc6-dev rdma-core ibverbs-providers libibverbs1 librdmacm1 && \
    rm -rf /var/lib/apt/lists/*

# A virtual environment of its own: the same on python:* images and on a Debian with its system Python.  The packages' own
# tests are a ninth of what they install, and of no use here.
COPY requirements.txt requirements-hashes.txt /app/
# hadolint ignore=SC2086
RUN python3 -m venv /opt/venv && \
    /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check ${PIP_ARGS} -r /app/${REQUIREMENTS} && \
    find /opt/venv/lib -type d \( -name test -o -name tests \) -prune -exec rm -rf {} +

# What was installed, with versions and licences, as CycloneDX: `docker run --rm --entrypoint cat IMAGE /opt/bill.cdx.json`.
# hadolint ignore=SC2086
RUN python3 -m venv /tmp/bill && \
    /tmp/bill/bin/python -m pip install --no-cache-dir --disable-pip-version-check ${PIP_ARGS} cyclonedx-bom==7.5.0 && \
    /tmp/bill/bin/cyclonedx-py environment --output-reproducible -o /opt/bill.cdx.json /opt/venv/bin/python && \
    rm -rf /tmp/bill

COPY . /app
# The checkout may have been made with any umask; the image's user is neither its owner nor of its group.  Numba compares
# compiled functions with the times of their sources, and layers keep whole seconds only.
RUN chmod -R a+rX /app && \
    find /app/pcfg_artifact -name '*.py' -exec touch -d @1577836800 {} + && \
    /opt/venv/bin/python -m compileall -q /app/pcfg_artifact && \
    PYTHONPATH=/app /opt/venv/bin/python -m pcfg_artifact compile && \
    chmod -R a+rX /app/pcfg_artifact && \
    mkdir -p /data /results && chown 10001:10001 /results

ARG VERSION=1.0.0
ARG REVISION=""
LABEL org.opencontainers.image.title="pcfg_artifact" \
      org.opencontainers.image.description="Do transformers parse while predicting the masked word? The paper's reproduction" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE_IMAGE}${BASE_DIGEST}"

# The root may be read-only and the network absent at run time: everything that is written lands in /results, or in a
# folder below /tmp that run_all.sh makes for the user and this version.
ENV PATH=/opt/venv/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PCFG_ARTIFACT_IN_IMAGE=${VERSION} \
    PCFG_ARTIFACT_OUT=/results \
    HOME=/tmp \
    USER=artifact \
    HF_HUB_OFFLINE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

VOLUME ["/data", "/results"]
WORKDIR /results
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/app/run_all.sh"]
