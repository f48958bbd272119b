#!/usr/bin/env bash
# From nothing to a matrix product computed by a server: installs what is
# missing, builds gemmd and gemmctl, starts the server on free ports, multiplies
# real data, shows what came of it and stops the server. Works from any
# directory, as root or as a user with sudo, with or without a GPU and CUDA.
#
#   deploy/quickstart.sh
#
# Environment: GEMMD_CMAKE_ARGS, more arguments for CMake, for instance
# -DGEMMD_CUDA=OFF or -DCMAKE_CUDA_ARCHITECTURES=80-real for an A100.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/step.sh

build=build/dev
step_logs=$build/logs
digits=client/examples/digits/digits.npy
product=$build/similarity.npy
# The digits' pixels are small integers, so float32 holds their products exactly:
# whatever computes it, there is one right file.
product_sha256=0168858ea1e48a6048f939575fc2a7c42a4f68f0c6dc1062dda7593c8c438398
server_log=$step_logs/gemmd.log
# Of /metrics, after the command that reads them: what the product left there.
shown='^(\$ |$|grpc_server_call_completed_total.*/Sgemm",grpc_status="OK"'
shown+='|grpc_server_call_duration_seconds_sum.*/Sgemm"'
shown+='|gemmd_(flops|kernel_launches)_total.* [1-9])'
server=
read -ra cmake_args <<<"${GEMMD_CMAKE_ARGS:-}"

fail() {
  echo "quickstart.sh: $*" >&2
  if [ -s "$server_log" ]; then
    echo "--- the last lines of $server_log:" >&2
    tail -n 20 "$server_log" >&2
  fi
  exit 1
}

# The server's exit code. One that does not stop by itself is killed.
stop_server() {
  [ -n "$server" ] || return 0
  local pid=$server
  server=
  kill -TERM "$pid" 2>/dev/null || true
  for _ in $(seq 400); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid"
}
trap 'stop_server || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The address in the server's line "NAME listening on ADDRESS", once it is there.
address_of() {
  local line
  for _ in $(seq 300); do
    line=$(sed -n "s/.*$1 listening on //p" "$server_log")
    [ -z "$line" ] || { echo "$line" && return 0; }
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

is_ready() {
  for _ in $(seq 300); do
    curl --silent --fail --output /dev/null "http://$http/readyz" && return 0
    kill -0 "$server" 2>/dev/null || return 1
    sleep 0.2
  done
  curl --silent --show-error "http://$http/readyz"
  return 1
}

# Says what it runs.
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

bash deploy/install_deps.sh
# Tests are left out of a first build; tests/run.sh adds them to the same one.
[ -f "$build/CMakeCache.txt" ] || cmake_args+=(-DGEMMD_TESTS=OFF)
step "Configuring" cmake --preset dev "${cmake_args[@]}"
sed -n 's/^-- \(gemmd: .*\)/\1/p' "$step_log"
step "Building the server and the client" \
  cmake --build "$build" --parallel "$(nproc)" --target gemmd gemmctl

: >"$server_log"
"$build/bin/gemmd" --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  >"$server_log" 2>&1 </dev/null &
server=$!
grpc=$(address_of grpc) || fail "the server did not start"
http=$(address_of http) || fail "the server did not start"
step "Waiting until the server is ready" is_ready ||
  fail "the server did not get ready"
echo "gemmd serves gRPC on $grpc and HTTP on $http"

show "$build/bin/gemmctl" multiply "$digits" "$digits" --transpose-b \
  -o "$product" --server "$grpc" 2>&1 || fail "the product failed"
sha256sum --quiet --check <<<"$product_sha256  $product" ||
  fail "the product is wrong"
echo "right    every bit, as the checksum in this script says"
show curl --silent --show-error --fail "http://$http/metrics" |
  grep -E "$shown" ||
  fail "/metrics does not show the product"
echo "..."
echo

status=0
stop_server || status=$?
[ "$status" -eq 0 ] || fail "the server ended with exit code $status"
echo "the server has stopped; the product is in $PWD/$product"
