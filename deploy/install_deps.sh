#!/usr/bin/env bash
# Installs the Debian 12 packages that gemmd needs: quiet when all are there.
#
#   deploy/install_deps.sh [--test] [--ci]
#
#   --test   also what tests/run.sh needs
#   --ci     also what .ci/run and charts need (implies --test)
#
# Works as root, or as a user who may use sudo. The CUDA Toolkit is not in
# Debian's main archive and is not installed here: gemmd is built with it where
# it is found, and for the CPU alone where it is not.
set -euo pipefail

build_packages=(
  cmake g++ ninja-build
  # the service: RPC, wire format, base library, metrics
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libabsl-dev prometheus-cpp-dev
  # the CPU backend, flags, logs, digests
  libopenblas-dev libcli11-dev libspdlog-dev libssl-dev
  libtcmalloc-minimal4  # the server's malloc
  curl  # deploy/quickstart.sh reads /metrics
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev
  # the generated Python client, and NumPy as the independent witness
  python3 python3-grpcio python3-protobuf python3-numpy
  git patchelf xz-utils  # deploy/bundle.sh
)
ci_packages=(
  python3-matplotlib  # tests/bench/kernel_bench/draw_charts.py
  clang clang-format-14 clang-tidy-14 libclang-rt-14-dev
  shellcheck valgrind
  # deploy/check.sh: rules and queries; images built and run; YAML
  prometheus buildah runc mmdebstrap jq python3-yaml
)

packages=("${build_packages[@]}")
want_npm=false
for argument in "$@"; do
  case $argument in
    --test) packages+=("${test_packages[@]}") ;;
    --ci)
      packages+=("${test_packages[@]}" "${ci_packages[@]}")
      want_npm=true
      ;;
    -h | --help)
      sed -n '2,11s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "install_deps.sh: unknown argument '$argument';" \
        "known are --test and --ci" >&2
      exit 2
      ;;
  esac
done
# npm brings buf. An npm from elsewhere will do: Debian's would replace it.
if $want_npm && ! command -v npm >/dev/null; then
  packages+=(npm)
fi

if ! grep -qs '^ID=debian$' /etc/os-release ||
  ! grep -qs '^VERSION_ID="12"$' /etc/os-release; then
  system=$(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' /etc/os-release 2>/dev/null ||
    true)
  {
    echo "install_deps.sh: this is ${system:-an unknown system}; the package" \
      "names are those of Debian 12 (bookworm)."
    echo "Install what corresponds to these, then go on with" \
      "'cmake --preset dev':"
    printf '%s\n' "${packages[*]}" | fold -s -w 76 | sed 's/^/  /'
  } >&2
  exit 1
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' \
  "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p') || true
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps.sh: not root, and there is no sudo. As root, run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } \
  >"$log" 2>&1; then
  echo "install_deps.sh: apt-get failed; its last lines:" >&2
  tail -n 15 "$log" >&2
  exit 1
fi
echo "installed"
