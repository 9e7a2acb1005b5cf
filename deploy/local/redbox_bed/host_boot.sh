#!/bin/sh
# Starts a host's namespaces and leaves them running: host_boot.sh KEEPER CGROUP_FILE... -- INIT ARGS...
# Runs on the machine. KEEPER is the process whose mount namespace holds the bed's overlays.
set -eu
keeper=$1; shift
while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift
read -r uptime _ </proc/uptime
# A new boot clock: slurmctld tells by it that a node has rebooted. `setsid -f`, so that no Ctrl-C reaches the host.
exec setsid -f nsenter --target "$keeper" --mount -- \
  unshare --net --uts --ipc --pid --mount --cgroup --time --boottime "-${uptime%%.*}" --fork -- "$@"
