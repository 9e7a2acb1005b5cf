#!/bin/sh
# Starts a host's namespaces and leaves them running: boot.sh KEEPER CGROUP_FILE... -- INIT ARGS...
# Runs on the machine, with PYTHON as its interpreter. KEEPER is the process whose mount namespace holds the bed's overlays.
set -eu
keeper=$1; shift
while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift
# `setsid -f`, so that no Ctrl-C reaches the host.
exec setsid -f nsenter --target "$keeper" --mount -- "$PYTHON" "${0%/*}/host_clock.py" \
  unshare --net --uts --ipc --pid --mount --cgroup --fork -- "$@"
