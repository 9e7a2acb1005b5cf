#!/bin/sh
# Runs a command inside a host, as one of its processes: host_enter.sh PID CGROUP_FILE... -- CMD...
set -eu
pid=$1; shift
while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift
exec nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup --time -- "$@"
