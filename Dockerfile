# DPH-RL in a container, for a CPU or for NVIDIA GPUs:
#   docker build -t dph-rl .                                docker build -t dph-rl:cuda --build-arg DEVICE=cuda .
#   docker run --rm -v "$PWD/runs:/data/runs" -v dph-cache:/cache dph-rl demo --smoke
#   docker run --rm --gpus all --shm-size 8g -v "$PWD/runs:/data/runs" -v dph-cache:/cache dph-rl:cuda doctor
ARG DEVICE=cpu
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG DEVICE
ARG EXTRAS=all
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/dph
ENV PATH=/opt/dph/bin:$PATH
WORKDIR /source
COPY constraints.txt ./
# torch is the large part, and keeps its layer when the source changes. PyPI's build for Linux brings CUDA.
# Its version is that of constraints.txt.
# hadolint ignore=DL3013
RUN torch="$(grep '^torch==' constraints.txt)" \
    && if [ "$DEVICE" = cpu ]; then pip install --index-url https://download.pytorch.org/whl/cpu "$torch"; \
       else pip install "$torch"; fi
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --constraint constraints.txt ".[$EXTRAS]"

FROM python:${PYTHON}-slim AS cpu

FROM python:${PYTHON}-slim AS cuda
# Triton compiles kernels at run time and needs a C compiler; the driver comes from the host
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3006
FROM ${DEVICE}
COPY --from=build /opt/dph /opt/dph
RUN useradd --create-home --uid 1000 dph && mkdir -p /cache /data/runs && chown -R dph:dph /cache /data
ENV PATH=/opt/dph/bin:$PATH DPH_CACHE=/cache/dph HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache MPLCONFIGDIR=/cache/matplotlib
USER 1000
WORKDIR /data
VOLUME ["/cache"]
ENTRYPOINT ["dph"]
CMD ["--help"]
