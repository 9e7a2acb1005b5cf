"""An image for the bed's MPI program, built on the login host as alice.

MPI is the host's, bound into the image, as sites do it whose network needs their own build.
"""

IMAGE = "/home/alice/redbox-tests/mpi.sif"
PINGPONG = "/usr/local/bin/pingpong"
BUILD = f"""
set -eu
mkdir -p /home/alice/redbox-tests
box=$(mktemp -d)
cd "$box"
mkdir usr proc sys dev tmp etc home mnt run var
for folder in bin sbin lib lib64; do ln -s usr/$folder $folder; done
touch etc/passwd etc/group etc/resolv.conf etc/hosts etc/localtime
apptainer -q build --force {IMAGE} "$box"
rm -rf "$box"
"""
