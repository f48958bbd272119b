#!/usr/bin/env bash
# Checks all of deploy/ that needs no GPU and no cluster. Each part prints one
# line with its time; a failed one shows the tail of its log, and the others
# still run.
#
#   bash deploy/check.sh [PART...]     all, or those named: see the list below
#
# As root, or as a user who may use sudo: Debian packages that are missing are
# installed first. The images need root and are left out of all without it. What
# npm brings goes below build/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. deploy/step.sh
step_logs=build/deploy/logs
work=build/deploy
monitoring=deploy/monitoring
mkdir -p "$work"

npm_packages() { # FOLDER: installs what its package.json names, below build/
  local to
  to=$work/$(basename "$1")
  cmp -s "$1/package.json" "$to/installed.json" && return
  mkdir -p "$to" && cp "$1/package.json" "$to" &&
    npm install --prefix "$to" --no-audit --no-fund --no-package-lock &&
    cp "$1/package.json" "$to/installed.json"
}

build() {
  cmake --preset dev && cmake --build build/dev --target gemmd gemmctl
}

alerts() {
  promtool check rules $monitoring/rules/*.yaml &&
    promtool test rules $monitoring/tests/*_test.yaml &&
    runbook_names_flags
}

# The flags that the runbook tells to set.
runbook_names_flags() {
  local flags flag known unknown=0
  known=$(build/dev/bin/gemmd --help)
  mapfile -t flags < <(grep -oE '`--[a-z-]+' $monitoring/README.md | tr -d '`')
  for flag in "${flags[@]}"; do
    grep -qw -- "$flag" <<<"$known" || {
      echo "the runbook names $flag, which is no flag of gemmd" && unknown=1
    }
  done
  return $unknown
}

dashboards() {
  /usr/bin/python3 $monitoring/make_dashboards.py --check &&
    /usr/bin/python3 $monitoring/lint.py &&
    npm_packages deploy/types &&
    node deploy/types/check.mjs $work/types $monitoring/dashboards/*.json
}

live() {
  promtool check metrics <$monitoring/tests/h200_metrics.txt &&
    /usr/bin/python3 $monitoring/check_live.py
}

# Components came with kustomize 4; Debian 12's own kubectl (1.20) is too old.
kustomize_build() { # FOLDER
  if command -v kustomize >/dev/null; then
    kustomize build "$1"
  else
    kubectl kustomize "$1"
  fi
}

manifests() {
  local to=$work/manifests overlay
  rm -rf "$to" && mkdir -p "$to" || return 1
  /usr/bin/python3 $monitoring/make_rule_objects.py --check &&
    one_version || return 1
  for overlay in deploy/kubernetes/overlays/*/; do
    kustomize_build "$overlay" >"$to/$(basename "$overlay").yaml" || {
      echo "kubectl 1.27 or kustomize 5, or newer, is needed to build $overlay"
      return 1
    }
  done
  npm_packages deploy/types &&
    node deploy/types/check.mjs $work/types "$to"/*.yaml &&
    /usr/bin/python3 deploy/kubernetes/check_manifests.py "$to"/*.yaml &&
    read_by_gemmd
}

# The version is the project's wherever it is written.
one_version() {
  local version file
  version=$(sed -n 's/^project(gemmd VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
  for file in deploy/docker/Dockerfile.{cpu,cuda} \
    deploy/kubernetes/base/kustomization.yaml; do
    grep -qE "(^ARG VERSION=|/version: )$version\$" "$file" || {
      echo "$file has another version than CMakeLists.txt, $version"
      return 1
    }
  done
}

# gemmd starts with the flags that the manifests give it, its ports apart.
read_by_gemmd() {
  local log=$work/conf.log
  timeout --preserve-status 5 build/dev/bin/gemmd \
    --config deploy/kubernetes/base/gemmd.conf --backend cpu --drain-delay 0 \
    --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 >"$log" 2>&1
  cat "$log"
  grep -q 'grpc listening' "$log"
}

compose() {
  promtool check config --syntax-only deploy/docker/prometheus.yml &&
    npm_packages deploy/types &&
    node deploy/types/check_compose.mjs $work/types deploy/docker/compose*.yaml &&
    variables_are_flags
}

# A variable of the environment that is misspelt is read by nobody, so nobody
# says so: each that is named in deploy/ is a flag of gemmd or one of gemmctl's.
variables_are_flags() {
  local variables variable flag known unknown=0
  known=$(build/dev/bin/gemmd --help && build/dev/bin/gemmctl --help)
  mapfile -t variables < <(grep -rhowE 'GEMMD_[A-Z_]+' \
    deploy/docker deploy/kubernetes SECURITY.md | sort -u)
  for variable in "${variables[@]}"; do
    flag=$(tr 'A-Z_' 'a-z-' <<<"${variable#GEMMD_}")
    grep -qwE -- "--$flag|$variable" <<<"$known" || {
      echo "$variable is no variable of gemmd or gemmctl" && unknown=1
    }
  done
  return $unknown
}

image() {
  bash deploy/docker/check_image.sh
}

# Not among all: it takes minutes, and a CUDA Toolkit.
cuda_image() {
  bash deploy/docker/check_image.sh cuda
}

# Not among all: it takes a Docker engine, and Docker Hub.
compose_up() {
  bash deploy/docker/check_compose.sh
}

declare -A titles=(
  [alerts]="Alerts fire and stay silent"
  [dashboards]="Dashboards: lint and types"
  [manifests]="Manifests: built, typed, to the checklist"
  [compose]="compose.yaml against its schema"
  [compose_up]="compose.yaml run by Docker"
  [image]="CPU image: built, restricted, multiplying"
  [cuda_image]="GPU image: likewise, without a GPU"
  [live]="Every panel and rule against a server"
)
parts=("$@")
if [ $# -eq 0 ]; then
  parts=(alerts dashboards manifests compose live)
  if [ "$(id -u)" -eq 0 ]; then
    parts=(image "${parts[@]}")
  else
    echo "left out, for it needs root: ${titles[image]}"
  fi
fi
passed=0 failed=0
count() { # STATUS
  if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# An image waits for archives and disks half of its time, so the parts that need
# one core go on beside it; not `live`, whose load needs both.
image_beside=
await_image() {
  [ -n "$image_beside" ] || return 0
  wait "$image_beside"
  count $?
  image_beside=
  cat "$work/image_step"
}

step "Installing what is missing" bash deploy/install_deps.sh --ci || exit 1
step "Building gemmd and gemmctl" build || exit 1
for part in "${parts[@]}"; do
  title=${titles[$part]:?no part is named $part}
  if [ "$part" = image ]; then
    step "$title" image >"$work/image_step" &
    image_beside=$!
    continue
  fi
  [ "$part" != live ] || await_image
  step "$title" "$part"
  count $?
done
await_image
printf 'deploy: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
