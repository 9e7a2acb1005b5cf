#!/bin/sh
# Runs a command inside a host, as one of its processes: enter.sh PID WHERE CGROUP_FILE... -- CMD...
# WHERE is `outside` to enter the host's control groups first and its namespaces then, or `inside` for the other order.
# nsenter stays outside as the command's parent: with version 2 it must not be in the host's group, since slurmd refuses
# a group in which it sees a process without a pid. The file is opened here, for from inside the way in is forbidden.
set -eu
pid=$1 where=$2
shift 2
enter() { exec nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup --time -- "$@"; }
if [ "$where" = inside ]; then
  exec 9>"$1"
  shift 2
  enter sh -ec 'echo 0 >&9; exec 9>&-; exec "$@"' sh "$@"
fi
while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift
enter "$@"
