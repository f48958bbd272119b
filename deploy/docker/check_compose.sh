#!/usr/bin/env bash
# Runs compose.yaml with this machine's Docker: builds, starts all of it, asks
# each part whether it has what the others give it, multiplies, and takes all of
# it down again.
#
#   deploy/docker/check_compose.sh [FILE...]    more compose files, over the first
#
# Needs Docker with Compose 2, the images that compose.yaml names, ports 50051,
# 9090 and 3000 of loopback, jq, curl and build/dev's gemmctl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

files=(-f deploy/docker/compose.yaml)
for file in "$@"; do files+=(-f "$file"); done
digits=client/examples/digits/digits.npy
product=$(mktemp --suffix .npy)
product_sha256=$(sed -n 's/^product_sha256=//p' deploy/quickstart.sh)
gemmctl=(build/dev/bin/gemmctl --server 127.0.0.1:50051)

compose() { docker compose -p gemmd-check "${files[@]}" "$@"; }
say() { printf '== %s\n' "$*"; }
fail() {
  echo "check_compose.sh: $*" >&2
  exit 1
}
cleanup() {
  compose down --volumes --remove-orphans >/dev/null 2>&1 || true
  rm -f "$product"
}
trap cleanup EXIT

# Until an answer of ADDRESS makes JQ_EXPRESSION true.
await() { # WHAT ADDRESS JQ_EXPRESSION
  local answer=
  for _ in $(seq 60); do
    answer=$(curl --silent --show-error --max-time 5 "http://$2" 2>&1) || true
    if jq -e "$3" <<<"$answer" >/dev/null 2>&1; then return; fi
    sleep 1
  done
  fail "$1: ${answer:0:2000}"
}

say "building and starting" && compose up --build --detach
# Prometheus starts once gemmd is healthy, so the health check has passed.
say "Prometheus scrapes gemmd, and has every rule"
await "a target is down" 127.0.0.1:9090/api/v1/targets \
  '.data.activeTargets | length == 1 and all(.health == "up")'
rules=$(grep -cE '^ +- (record|alert):' deploy/monitoring/rules/*.yaml |
  awk -F : '{sum += $2} END {print sum}')
await "not $rules good rules" 127.0.0.1:9090/api/v1/rules \
  "[.data.groups[].rules[]] | length == $rules and all(.health == \"ok\")"
say "Grafana has the dashboards, and reaches Prometheus"
await "no dashboards" "127.0.0.1:3000/api/search?type=dash-db" \
  'map(.uid) | sort == ["gemmd-gpu", "gemmd-service"]'
source=127.0.0.1:3000/api/datasources/proxy/uid/prometheus
await "no answer through Grafana" "$source/api/v1/query?query=gemmd_ready" \
  '.data.result[0].value[1] == "1"'
say "multiplying"
"${gemmctl[@]}" multiply "$digits" "$digits" --transpose-b -o "$product"
sha256sum --quiet --check <<<"$product_sha256  $product" ||
  fail "another product than everywhere else"
await "the product is not in Prometheus" \
  "127.0.0.1:9090/api/v1/query?query=sum(gemmd_kernel_launches_total)" \
  '.data.result[0].value[1] | tonumber > 0'
say "stopping" && compose stop
code=$(docker inspect --format '{{.State.ExitCode}}' \
  "$(compose ps --all --quiet gemmd)")
[ "$code" -eq 0 ] || fail "gemmd ended with exit code $code"
say "good"
