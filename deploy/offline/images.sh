#!/usr/bin/env bash
# Makes the base images where no registry of images is reached: Debian by debootstrap, wheels by this machine's pip.
# Needs root, debootstrap and Docker. Takes two minutes the first time; what is there already is kept.
#
#   headrace-offline/base    Debian 12 with python3 and tini: BASE_IMAGE
#   headrace-offline/proxy   the same with haproxy: PROXY_IMAGE
#   headrace-offline/build   the same with a compiler, and wheels of all that is installed: BUILD_IMAGE
set -euo pipefail
cd "$(dirname "$0")/../.."

PYTHON=${PYTHON:-.venv/bin/python}          # 3.11, whose pip knows where packages come from
MIRROR=${MIRROR:-}                           # of Debian; debootstrap knows one
CACHE=${HEADRACE_OFFLINE_CACHE:-$HOME/.cache/headrace/offline}
WHEELS=$CACHE/wheels
ROOT=$(mktemp -d)
trap 'umount -q "$ROOT/proc" || true; rm -rf "$ROOT"' EXIT

have() { docker image inspect "headrace-offline/$1" >/dev/null 2>&1; }

import() {  # NAME: an image of what lies in $ROOT, without what no image needs
  rm -rf "$ROOT"/var/cache/apt/* "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/log/* "$ROOT"/tmp/* \
    "$ROOT"/usr/share/{doc,man,info,locale,i18n,lintian,bug}
  tar -C "$ROOT" --one-file-system --exclude ./proc/* --exclude ./sys/* -c . | docker import - "headrace-offline/$1" >/dev/null
}

install() {  # PACKAGE...: into $ROOT
  chroot "$ROOT" env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' - "$@" >/dev/null
}

debian() {
  mkdir -p "$CACHE/debs"
  debootstrap --variant=minbase --cache-dir="$CACHE/debs" --include=python3,tini bookworm "$ROOT" ${MIRROR:+"$MIRROR"} >/dev/null
  cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
  printf 'APT::Install-Recommends "0";\nAPT::Sandbox::User "root";\n' >"$ROOT/etc/apt/apt.conf.d/99headrace"
}

wheels() {  # of everything that the images install, at its exact version
  mkdir -p "$WHEELS"
  local image download=("$PYTHON" -m pip download -q --only-binary=:all: --python-version 3.11.2 --constraint constraints.txt --dest "$WHEELS")
  for image in control worker brokers build; do
    "$PYTHON" deploy/images/requirements.py "$image" >"$ROOT/$image.txt"
  done
  "${download[@]}" --requirement "$ROOT"/control.txt --requirement "$ROOT"/worker.txt \
    --requirement "$ROOT"/brokers.txt --requirement "$ROOT"/build.txt
  "${download[@]}" --no-deps "$("$PYTHON" deploy/images/requirements.py model)"
  rm "$ROOT"/*.txt
}

if have base && have proxy && have build && [ "${1:-}" != --fresh ]; then exit 0; fi
echo "making base images" >&2
wheels
debian
import base
install haproxy
import proxy
install g++ python3-venv
mkdir "$ROOT/wheels"
cp "$WHEELS"/*.whl "$ROOT/wheels"
printf '[global]\nno-index = true\nfind-links = /wheels\n' >"$ROOT/etc/pip.conf"
import build
