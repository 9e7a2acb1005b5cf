"""A small container image, built on the login host as alice."""

import shlex

IMAGE = "/home/alice/redbox-tests/image.sif"
SHOW = 'for word in "$@"; do printf "<%s>" "$word"; done'
BUILD = f"""
set -eu
[ ! -e {IMAGE} ] || exit 0
mkdir -p /home/alice/redbox-tests
box=$(mktemp -d)
cd "$box"
mkdir bin proc sys dev tmp etc home mnt .singularity.d
chmod 1777 tmp
cp /bin/busybox "$box/bin/"
for tool in sh cat env printf id hostname sleep ls pwd stty tar httpd mkdir test head; do
    ln -s busybox "$box/bin/$tool"
done
printf '#!/bin/sh\n%s\n' {shlex.quote(SHOW)} >"$box/.singularity.d/runscript"
chmod 755 "$box/.singularity.d/runscript"
touch "$box/etc/passwd" "$box/etc/group" "$box/etc/resolv.conf" "$box/etc/hosts" "$box/etc/localtime"
apptainer -q build {IMAGE} "$box"
chmod -R u+w "$box"; rm -rf "$box"
"""
BARE_IMAGE = "/home/alice/redbox-tests/bare.sif"
BUILD_BARE = f"""
set -eu
[ ! -e {BARE_IMAGE} ] || exit 0
box=$(mktemp -d)
cp /bin/busybox "$box/sleep"
apptainer -q build {BARE_IMAGE} "$box"
chmod -R u+w "$box"; rm -rf "$box"
"""
"""An image with one program: it has no shell."""
