# One image for GPU and CPU.  `docker run IMAGE` runs the smoke profile; see README.md for the others.
# torch's default wheel brings its own CUDA, so that the base is plain Python and there is no second copy.
# The tag names one release; with its digest the build is the same bytes for ever:
#   --build-arg BASE_DIGEST=@sha256:...   (docker buildx imagetools inspect python:3.11.13-slim-bookworm)
ARG BASE_IMAGE=python:3.11.13-slim-bookworm
ARG BASE_DIGEST=""
FROM ${BASE_IMAGE}${BASE_DIGEST}

# Options for pip, for example a CPU build or a mirror of your own: --build-arg PIP_ARGS="--index-url URL".
ARG PIP_ARGS=""

# A small init as process 1: it hands signals on to all processes of a run, so that `docker stop` ends it at once.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*

# A virtual environment of its own: the same on python:* images and on a Debian with its system Python.  The packages' own
# tests are a ninth of what they install, and of no use here.
COPY requirements.txt /app/requirements.txt
# hadolint ignore=SC2086
RUN python3 -m venv /opt/venv && \
    /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check ${PIP_ARGS} -r /app/requirements.txt && \
    find /opt/venv/lib -type d \( -name test -o -name tests \) -prune -exec rm -rf {} +

COPY . /app
# The checkout may have been made with any umask; the image's user is neither its owner nor of its group.
RUN chmod -R a+rX /app && \
    /opt/venv/bin/python -m compileall -q /app/pcfg_artifact && \
    mkdir -p /data /results && chown 10001:10001 /results

# The root may be read-only and the network absent at run time: everything that is written lands in /results or /tmp.
ENV PATH=/opt/venv/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PCFG_ARTIFACT_IN_IMAGE=1 \
    PCFG_ARTIFACT_OUT=/results \
    HOME=/tmp \
    USER=artifact \
    XDG_CACHE_HOME=/tmp/cache \
    NUMBA_CACHE_DIR=/tmp/cache/numba \
    MPLCONFIGDIR=/tmp/cache/matplotlib \
    HF_HOME=/tmp/cache/huggingface \
    HF_HUB_OFFLINE=1 \
    TRITON_CACHE_DIR=/tmp/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/tmp/cache/inductor \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

VOLUME ["/data", "/results"]
WORKDIR /results
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/app/run_all.sh"]
