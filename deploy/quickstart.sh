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
server_log=$step_logs/gemmd.log
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

stop_server() {
  [ -n "$server" ] || return 0
  local pid=$server
  server=
  kill -TERM "$pid" 2>/dev/null || true
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

bash deploy/install_deps.sh
# Tests are left out of a first build; tests/run.sh adds them to the same one.
[ -f "$build/CMakeCache.txt" ] || cmake_args+=(-DGEMMD_TESTS=OFF)
step "Configuring" cmake --preset dev "${cmake_args[@]}"
sed -n 's/^-- \(gemmd: .*\)/\1/p' "$step_log"
step "Building the server and the client" \
  cmake --build "$build" --parallel "$(nproc)" --target gemmd gemmctl

"$build/bin/gemmd" --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  >"$server_log" 2>&1 </dev/null &
server=$!
grpc=$(address_of grpc) || fail "the server did not start"
http=$(address_of http) || fail "the server did not start"
step "Waiting until the server is ready" \
  curl --silent --show-error --fail --output /dev/null \
  --retry 60 --retry-delay 1 --retry-all-errors "http://$http/readyz" ||
  fail "the server did not get ready"
echo "gemmd serves gRPC on $grpc and HTTP on $http"

echo
echo "\$ gemmctl multiply digits.npy digits.npy --transpose-b -o similarity.npy"
"$build/bin/gemmctl" multiply "$digits" "$digits" --transpose-b \
  -o "$product" --server "$grpc" || fail "the product failed"
echo
echo "\$ curl http://$http/metrics | grep ..."
curl --silent --show-error --fail "http://$http/metrics" |
  grep -E '^(grpc_server_call_completed_total|gemmd_(batches|flops)_total)' ||
  fail "/metrics does not show the product"
echo

status=0
stop_server || status=$?
[ "$status" -eq 0 ] || fail "the server ended with exit code $status"
echo "the server has stopped; the product is in $PWD/$product"
