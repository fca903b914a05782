#!/usr/bin/env bash
# Makes the base images where no registry of images is reached: Debian by debootstrap, wheels by this machine's pip.
# Needs root, debootstrap and Docker. Takes two minutes the first time; what is there and still fits is kept.
#
#   headrace-offline/base       Debian 12 with python3 and tini: BASE_IMAGE
#   headrace-offline/proxy      the same with haproxy: PROXY_IMAGE
#   headrace-offline/toolchain  the same with a compiler
#   headrace-offline/build      the same with wheels of all that is installed: BUILD_IMAGE
set -euo pipefail
cd "$(dirname "$0")/../.."

PYTHON=${PYTHON:-.venv/bin/python}  # 3.11, whose pip knows where packages come from
MIRROR=${MIRROR:-}                  # of Debian; debootstrap knows one
CACHE=${HEADRACE_OFFLINE_CACHE:-$HOME/.cache/headrace/offline}
LABEL=headrace.inputs

digest() { cat "$@" | sha256sum | cut -c1-16; }

fits() {  # IMAGE INPUTS: is it there, made of just these
  [ "$(docker image inspect --format "{{index .Config.Labels \"$LABEL\"}}" "headrace-offline/$1" 2>/dev/null)" = "$2" ]
}

import() {  # IMAGE: of what lies in $ROOT, without what no image needs
  rm -rf "$ROOT"/var/cache/apt/* "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/log/* "$ROOT"/tmp/* \
    "$ROOT"/usr/share/{doc,man,info,locale,i18n,lintian,bug}
  tar -C "$ROOT" --one-file-system --exclude './proc/*' --exclude './sys/*' -c . |
    docker import --change "LABEL $LABEL=$SYSTEM" - "headrace-offline/$1" >/dev/null
}

install() {  # PACKAGE...: into $ROOT
  chroot "$ROOT" env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' - "$@" >/dev/null 2>&1
}

system() {  # all that comes from Debian's archive
  ROOT=$(mktemp -d)
  trap 'rm -rf "$ROOT"' EXIT
  mkdir -p "$CACHE/debs"
  debootstrap --variant=minbase --cache-dir="$CACHE/debs" --include=python3,tini bookworm "$ROOT" ${MIRROR:+"$MIRROR"} >/dev/null
  cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
  import base
  install haproxy
  import proxy
  install g++ python3-venv
  import toolchain
}

wheels() {  # of everything that the images install, at its exact version
  rm -rf "$CACHE/wheels"
  mkdir -p "$CACHE/wheels"
  local image lists=() download=("$PYTHON" -m pip download -q --only-binary=:all: --constraint constraints.txt
    --dest "$CACHE/wheels")
  for image in control worker brokers build; do
    "$PYTHON" deploy/images/requirements.py "$image" >"$CACHE/$image.txt"
    lists+=(--requirement "$CACHE/$image.txt")
  done
  # Debian 12's Python is 3.11.2, for which redis wants one package more than for the Python that asks here.
  "${download[@]}" "${lists[@]}" async-timeout 2> >(grep -v WARNING >&2)
  "${download[@]}" --no-deps "$("$PYTHON" deploy/images/requirements.py model)" 2> >(grep -v WARNING >&2)
  DOCKER_BUILDKIT=0 docker build -q -t headrace-offline/build --label "$LABEL=$PACKAGES" -f - "$CACHE/wheels" >/dev/null 2>&1 <<'DOCKERFILE'
FROM headrace-offline/toolchain
COPY . /wheels
RUN printf '[global]\nno-index = true\nfind-links = /wheels\n' >/etc/pip.conf
DOCKERFILE
}

SYSTEM=$(declare -f import install system | digest)
PACKAGES=$(declare -f wheels | digest - deploy/images/requirements.py pyproject.toml constraints.txt)
fits base "$SYSTEM" && fits proxy "$SYSTEM" && fits toolchain "$SYSTEM" || system
fits build "$PACKAGES" || wheels
