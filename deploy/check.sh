#!/usr/bin/env bash
# Checks all of deploy/ that needs no GPU and no cluster. Each part prints one
# line with its time; a failed one shows the tail of its log, and the others
# still run.
#
#   bash deploy/check.sh [PART...]     all, or those named: see the list below
#
# As root for the part `image`. What it installs from npm goes below build/.
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
  mkdir -p "$to" && cp "$1/package.json" "$to" &&
    npm install --prefix "$to" --no-audit --no-fund --no-package-lock
}

build() {
  cmake --preset dev && cmake --build build/dev --target gemmd gemmctl
}

alerts() {
  promtool check rules $monitoring/rules/*.yaml &&
    promtool test rules $monitoring/tests/*_test.yaml
}

dashboards() {
  /usr/bin/python3 $monitoring/make_dashboards.py --check &&
    /usr/bin/python3 $monitoring/lint.py &&
    npm_packages deploy/types &&
    node deploy/types/check.mjs $work/types $monitoring/dashboards/*.json
}

live() {
  promtool check metrics <$monitoring/tests/h200_metrics.txt &&
    build && /usr/bin/python3 $monitoring/check_live.py
}

declare -A titles=(
  [alerts]="Alerts fire and stay silent"
  [dashboards]="Dashboards: lint and types"
  [live]="Every panel and rule against a server"
)
parts=("$@")
[ $# -gt 0 ] || parts=(alerts dashboards live)

failed=0
for part in "${parts[@]}"; do
  step "${titles[$part]:?no part is named $part}" "$part" ||
    failed=$((failed + 1))
done
printf 'deploy: %d passed, %d failed\n' $((${#parts[@]} - failed)) "$failed"
[ "$failed" -eq 0 ]
