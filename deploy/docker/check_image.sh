#!/usr/bin/env bash
# Builds an image with buildah, on a Debian made here, and runs it as a restricted
# pod would: no root, no capability, no new privilege, a read-only root, no
# network but its own loopback, 512 MiB. Then multiplies through it.
#
#   deploy/docker/check_image.sh [cpu|cuda] [--built]
#
# cuda: with the CUDA Toolkit of this machine in place of NVIDIA's image, for one
# architecture ($CUDA_ARCHITECTURES, else 90a-real), run on the CPU: a machine
# without a GPU will do.
# --built: checks the image of the last run and builds none. As root, on Debian;
# needs build/dev's gemmctl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

flavour=cpu
case ${1:-} in cpu | cuda) flavour=$1 && shift ;; esac
work=$PWD/build/deploy/image
base=localhost/gemmd-base
image=localhost/gemmd:$flavour
cuda=/usr/local/cuda-13.0
declare -A limit_mb=([cpu]=120 [cuda]=150)
digits=client/examples/digits/digits.npy
product_sha256=$(sed -n 's/^product_sha256=//p' deploy/quickstart.sh)
container=gemmd-check-$$
bundle=$work/bundle
mkdir -p "$work"

buildah() {
  command buildah --root "$work/storage" --runroot "$work/run" \
    --storage-driver vfs "$@"
}
say() { printf '== %s\n' "$*"; }
fail() {
  echo "check_image.sh: $*" >&2
  exit 1
}
cleanup() {
  runc --root "$work/runc" delete --force "$container" 2>/dev/null || true
  rm -rf "$bundle"
}
trap cleanup EXIT

make_base() {
  [ -f "$work/base.tar" ] || mmdebstrap --variant=apt bookworm "$work/base.tar"
  printf 'FROM scratch\nADD base.tar /\n' |
    buildah bud --isolation chroot -t "$base" -f - "$work"
}

# What nvcc needs of the toolkit, as an image with it at the same place as in
# NVIDIA's.
make_toolkit() {
  [ -x $cuda/bin/nvcc ] || fail "there is no $cuda/bin/nvcc"
  mkdir -p "$work/toolkit"
  (cd / && tar -cf "$work/toolkit/cuda.tar" \
    ".$cuda"/{bin,nvvm,include,targets,lib64,lib/*.a,lib/libcudart.so*})
  printf 'FROM scratch\nADD cuda.tar /\n' |
    buildah bud --isolation chroot -t "$base-cuda" -f - "$work/toolkit"
  rm "$work/toolkit/cuda.tar"
}

build_image() {
  local arguments=()
  if [ "$flavour" = cuda ]; then
    arguments=(--target gemmd --build-arg CUDA_IMAGE="$base-cuda"
      --build-arg CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-90a-real}")
  fi
  buildah bud --isolation chroot --format docker -t "$image" \
    --build-arg BUILD_IMAGE="$base" "${arguments[@]}" \
    --build-arg REVISION="$(git rev-parse --short=12 HEAD)" \
    --build-arg CREATED="$(git log -1 --format=%cI)" \
    -f "deploy/docker/Dockerfile.$flavour" .
}

config() { # JQ_EXPRESSION: of the image's configuration
  buildah inspect --type image "$image" | jq -er ".Docker.config | $1"
}

check_config() {
  [ "$(config .User)" = 65532:65532 ] || fail "the user is $(config .User)"
  [ "$(config '.Entrypoint | join(" ")')" = /usr/local/bin/gemmd ]
  [ "$(config .StopSignal)" = SIGTERM ]
  [ "$(config '.Healthcheck.Test | join(" ")')" = \
    "CMD /usr/local/bin/gemmctl health" ]
  config '.Labels["org.opencontainers.image.revision"]' >/dev/null
  config '.Labels["org.opencontainers.image.licenses"]' >/dev/null
  config '.Env | any(startswith("NVIDIA_VISIBLE_DEVICES")) | not' >/dev/null
  [ "$flavour" = cpu ] ||
    config '.Env | any(. == "NVIDIA_DRIVER_CAPABILITIES=compute,utility")' \
      >/dev/null
}

# The image's files as a folder, and the profile under which they run.
unpack() {
  rm -rf "$bundle" && mkdir -p "$bundle/shared"
  local from mounted
  from=$(buildah from "$image")
  mounted=$(buildah mount "$from")
  cp -a "$mounted" "$bundle/rootfs"
  buildah rm "$from" >/dev/null
  chown 65532:65532 "$bundle/shared"
  runc spec --bundle "$bundle"
  jq --argjson args "$(config .Entrypoint)" --argjson env "$(config .Env)" \
    --arg shared "$bundle/shared" '
    .process.terminal = false
    | .process.args = $args
    | .process.env = $env + ["GEMMD_UNIX_SOCKET=/run/gemmd/socket",
                             "GEMMD_MAX_INLINE_BYTES=64MiB"]
    | .process.user = {uid: 65532, gid: 65532}
    | .process.capabilities = {}
    | .process.noNewPrivileges = true
    | .root.readonly = true
    | .linux.resources.memory.limit = 536870912
    | .linux.resources.pids.limit = 256
    | .mounts += [{destination: "/run/gemmd", type: "bind", source: $shared,
                   options: ["bind", "rw", "nosuid", "nodev", "noexec"]}]
    ' "$bundle/config.json" >"$bundle/new.json"
  mv "$bundle/new.json" "$bundle/config.json"
}

check_files() {
  local root=$bundle/rootfs bytes
  bytes=$(du -s --block-size=1 --apparent-size "$root" | cut -f 1)
  echo "size: $((bytes / 1000000)) MB; compressed $(tar -C "$root" -cz . |
    wc -c | awk '{printf "%d", $1 / 1000000}') MB"
  [ "$bytes" -le $((limit_mb[$flavour] * 1000000)) ] ||
    fail "over ${limit_mb[$flavour]} MB"
  [ -z "$(find "$root" -perm /6000)" ] || fail "a file with setuid"
  [ -z "$(find "$root" -name sh -o -name bash -o -name busybox)" ] ||
    fail "a shell"
  jq -e '.packages | length > 10' "$root/usr/share/gemmd/sbom.spdx.json"
}

in_container() { runc --root "$work/runc" exec "$container" "$@"; }

run() {
  runc --root "$work/runc" run --detach --bundle "$bundle" \
    --pid-file "$work/pid" "$container" >"$work/gemmd.log" 2>&1 </dev/null ||
    fail "$(cat "$work/gemmd.log")"
  for _ in $(seq 100); do
    if in_container /usr/local/bin/gemmctl health >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "not healthy: $(cat "$work/gemmd.log")"
}

# Without a GPU it serves on the CPU and says what it lacks; told to use one, it
# refuses in one line.
check_without_gpu() {
  [ "$flavour" = cuda ] || return 0
  grep 'kernels not available' "$work/gemmd.log" | grep -i driver ||
    fail "no word of CUDA: $(cat "$work/gemmd.log")"
  grep 'device ready backend=cpu' "$work/gemmd.log" ||
    fail "not on the CPU: $(cat "$work/gemmd.log")"
  local status=0
  in_container /usr/local/bin/gemmd --backend cuda --listen 127.0.0.1:0 \
    --http-listen= --unix-socket= >"$work/refusal.log" 2>&1 || status=$?
  cat "$work/refusal.log"
  [ "$status" -eq 1 ] || fail "exit code $status with --backend cuda"
  [ "$(wc -l <"$work/refusal.log")" -eq 1 ] || fail "not one line"
}

check_restrictions() {
  local status
  status=$(cat "/proc/$(cat "$work/pid")/status")
  grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' <<<"$status"
  grep -qE '^Uid:\s65532\s65532\s65532\s65532$' <<<"$status"
  grep -qE '^CapEff:\s0+$' <<<"$status"
  grep -qE '^CapBnd:\s0+$' <<<"$status"
  grep -qE '^NoNewPrivs:\s1$' <<<"$status"
}

multiply() {
  local product=$work/product.npy
  rm -f "$product"
  build/dev/bin/gemmctl --server "unix:$bundle/shared/socket" \
    multiply "$digits" "$digits" --transpose-b -o "$product"
  sha256sum "$product"
  [ "$(sha256sum "$product" | cut -d ' ' -f 1)" = "$product_sha256" ] ||
    fail "another product than everywhere else"
}

# The first process has no default for SIGTERM: it must handle it.
stop() {
  local pid
  pid=$(cat "$work/pid")
  runc --root "$work/runc" kill "$container" TERM
  for _ in $(seq 100); do
    [ "$(runc --root "$work/runc" state "$container" | jq -r .status)" = stopped ] &&
      grep -q stopped "$work/gemmd.log" && return
    sleep 0.1
  done
  fail "SIGTERM did not stop it (process $pid)"
}

if [ "${1:-}" != --built ]; then
  say "a Debian to build on" && make_base
  [ "$flavour" = cpu ] || { say "the CUDA Toolkit" && make_toolkit; }
  say "the image" && build_image
fi
say "its configuration" && check_config
say "its files" && unpack && check_files
say "running it" && run && check_restrictions && check_without_gpu
say "multiplying through it" && multiply
say "stopping it" && stop
say "good"
