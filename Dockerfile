# For machines with NVIDIA GPUs. This image has not been built or tested: development had neither Docker nor a GPU.
#
#   docker build -t rdm .
#   docker run --gpus all --shm-size=8g -v "$PWD/data:/rdm/data" -v "$PWD/outputs:/rdm/outputs" rdm \
#       python train.py experiment=iwslt14/rdm_absorbing trainer=gpu
#
# The wheels of torch on the default package index bring CUDA; the host needs only the driver and the NVIDIA
# container toolkit.
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /rdm
# The versions first, so that a change of the code does not install torch again.
COPY constraints.txt ./
RUN pip install --no-cache-dir $(grep '^torch==' constraints.txt)

COPY . .
RUN pip install --no-cache-dir -c constraints.txt -e '.[loggers,sweeps]'

CMD ["python", "train.py", "--help"]
