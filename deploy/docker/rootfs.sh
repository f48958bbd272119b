#!/usr/bin/env bash
# Collects what an image of gemmd holds: the programs, every library that they
# load, the loader, a user, the licences of the packages these come from, and a
# list of those packages (SPDX). Run in the build stage, on Debian.
#
#   rootfs.sh BIN ROOT        programs from BIN, into the new folder ROOT
set -euo pipefail
bin=$1 root=$2
libraries=usr/lib/x86_64-linux-gnu

mkdir -p "$root"/{etc,tmp,run/gemmd,usr/local/bin,usr/lib64,usr/share/gemmd} \
  "$root/$libraries"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
chmod 1777 "$root/tmp"
chown 65532:65532 "$root/run/gemmd"
for program in gemmd gemmctl; do
  install -s "$bin/$program" "$root/usr/local/bin/"
done

# OpenBLAS is loaded when gemmd starts, so that no program names it.
openblas=$(/sbin/ldconfig -p |
  sed -n 's/.*libopenblas\.so\.0 (.*x86-64.*) => //p' | head -n 1)
# "NAME PATH" of each library, each under the name that is asked for.
needed=$({
  echo "libopenblas.so.0 $openblas"
  ldd "$root"/usr/local/bin/* "$openblas" | awk '$2 == "=>" {print $1, $3}'
} | sort -u)
while read -r name path; do
  install -m 644 "$(realpath "$path")" "$root/$libraries/$name"
done <<<"$needed"
loader=/lib64/ld-linux-x86-64.so.2
install "$(realpath "$loader")" "$root$loader"

echo 'gemmd:x:65532:65532:gemmd:/:/nonexistent' >"$root/etc/passwd"
echo 'gemmd:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
cp /etc/os-release "$root/etc/"

# dpkg knows a file of the merged /usr by this or by its older name.
packages=$(awk '{print $2}' <<<"$needed" | xargs realpath |
  while read -r path; do
    dpkg-query -S "$path" "${path#/usr}" 2>/dev/null || true
  done | sed 's/:.*//' | sort -u)
for package in $packages; do
  install -D -m 644 "/usr/share/doc/$package/copyright" \
    "$root/usr/share/doc/$package/copyright"
done
install -D -m 644 LICENSE "$root/usr/share/doc/gemmd/copyright"

{
  printf '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0",\n'
  printf ' "SPDXID": "SPDXRef-DOCUMENT", "name": "gemmd",\n'
  printf ' "documentNamespace": "urn:gemmd:%s",\n' \
    "$(sha256sum "$root/usr/local/bin/gemmd" | cut -d ' ' -f 1)"
  printf ' "creationInfo": {"created": "%s",' \
    "$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%dT%H:%M:%SZ)"
  printf ' "creators": ["Tool: deploy/docker/rootfs.sh"]},\n "packages": [\n'
  # shellcheck disable=SC2086
  dpkg-query -W -f '  {"SPDXID": "SPDXRef-${Package}", "name": "${Package}", "versionInfo": "${Version}", "downloadLocation": "NOASSERTION", "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:deb/debian/${Package}@${Version}?arch=${Architecture}"}]},\n' $packages |
    sed '$s/,$//'
  printf ' ]}\n'
} >"$root/usr/share/gemmd/sbom.spdx.json"
