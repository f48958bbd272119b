#!/usr/bin/env bash
# Draws the pictures beside this script anew: a run of check_live.py of three
# minutes, then Grafana's UI library in headless Chromium. Takes five minutes
# and 700 MB below build/, so it is no part of deploy/check.sh.
#
#   deploy/monitoring/pictures/draw.sh
#
# Needs Node and npm, and Debian's chromium, prometheus and fonts-dejavu-core.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
work=build/deploy/pictures
mkdir -p "$work"
cp deploy/monitoring/pictures/package.json "$work"
npm install --prefix "$work" --no-audit --no-fund --no-package-lock \
  --legacy-peer-deps
cmake --preset dev
cmake --build build/dev --target gemmd gemmctl
/usr/bin/python3 deploy/monitoring/check_live.py --seconds 180 --pause 30 \
  --save "$work/answers.json"
node deploy/monitoring/pictures/draw.mjs "$work" "$work/answers.json"
