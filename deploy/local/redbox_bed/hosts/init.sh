#!/bin/sh
# The first process inside a host's new namespaces: builds the host's own view and becomes its PID 1.
#   NAME      host name                         TREE       where the overlay of its cluster is mounted
#   OWN       folder of what only this host has, laid out as in the host; OWN_PATHS what of it to mount
#   HOMES     the cluster's /home               HOMES_AT   where to mount it
#   CGROUPS   "v1 cpu memory ..." or "v2"       DEVICES    "name:major:minor:mode ..."
#   BINDS     "source:target ...", mounted read-only
# Says its pid, as the machine counts, on its standard output once all is in place.
set -eu
: "${NAME:?}" "${TREE:?}" "${OWN:?}" "${OWN_PATHS:?}" "${HOMES:?}" "${HOMES_AT:?}" "${CGROUPS:?}" "${DEVICES:?}" "${BINDS?}"
exec 3>&1 1>&2

mount_api_file_systems() {
  mount -t proc -o nosuid,nodev,noexec proc "$TREE/proc"
  mount -t sysfs -o nosuid,nodev,noexec sysfs "$TREE/sys"
  mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$TREE/run"
  mkdir -m 1777 "$TREE/run/lock"
  mkdir -m 755 "$TREE/run/bed" "$TREE/run/sshd"
}

# We were put into the host's groups before the cgroup namespace was made, so a fresh mount shows them as "/".
mount_cgroups() {
  if [ "$CGROUPS" = v2 ]; then
    mount -t cgroup2 cgroup2 "$TREE/sys/fs/cgroup"
    return
  fi
  mount -t tmpfs -o mode=755 cgroup "$TREE/sys/fs/cgroup"
  for controllers in ${CGROUPS#v1 }; do
    mkdir "$TREE/sys/fs/cgroup/$controllers"
    mount -t cgroup -o "$controllers" cgroup "$TREE/sys/fs/cgroup/$controllers"
    case $controllers in *,*)
      for one in $(echo "$controllers" | tr , ' '); do ln -s "$controllers" "$TREE/sys/fs/cgroup/$one"; done ;;
    esac
  done
}

make_devices() {
  mount -t tmpfs -o mode=755,nosuid tmpfs "$TREE/dev"
  mkdir "$TREE/dev/pts" "$TREE/dev/shm" "$TREE/dev/mqueue"
  echo "$DEVICES" | tr ' ' '\n' | while IFS=: read -r name major minor mode; do
    mknod "$TREE/dev/$name" c "$major" "$minor"
    chmod "$mode" "$TREE/dev/$name"
  done
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$TREE/dev/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$TREE/dev/shm"
  mount -t mqueue mqueue "$TREE/dev/mqueue"
  ln -s pts/ptmx "$TREE/dev/ptmx"
  ln -s /proc/self/fd "$TREE/dev/fd"
  ln -s /proc/self/fd/0 "$TREE/dev/stdin"
  ln -s /proc/self/fd/1 "$TREE/dev/stdout"
  ln -s /proc/self/fd/2 "$TREE/dev/stderr"
}

mount_folders() {
  for folder in $OWN_PATHS; do mount --bind "$OWN/$folder" "$TREE/$folder"; done
  echo "$NAME" >"$TREE/run/bed/hostname"
  mount --bind "$TREE/run/bed/hostname" "$TREE/etc/hostname"
  mount --bind "$HOMES" "$TREE$HOMES_AT"
  for bind in $BINDS; do
    mkdir -p "$TREE${bind#*:}"
    mount --bind "${bind%%:*}" "$TREE${bind#*:}"
    mount -o remount,bind,ro "$TREE${bind#*:}"
  done
}

read -r pid _ </proc/self/stat
hostname "$NAME"
mount_api_file_systems
mount_cgroups
make_devices
mount_folders
cd "$TREE"
pivot_root . .old
umount -l /.old
[ ! -d /proc/sys/net/ipv6 ] || for which in all default; do echo 1 >"/proc/sys/net/ipv6/conf/$which/disable_ipv6"; done
ip link set lo up
echo "$pid" >&3
exec /usr/bin/tini -s -- /bin/sh -c 'exec sleep infinity' "bed host $NAME" 3>&-
