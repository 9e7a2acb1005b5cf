# Apptainer from unstable where the suite's C library is too old for it (bookworm): with a C library of its own, which
# only its two programs use. Taking the newer one for all would leave little of the older release.
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends patchelf containernetworking-plugins
libc=/opt/apptainer-libc
unpacked=$(mktemp -d)
(cd "$unpacked" && apt-get -qq -o APT::Sandbox::User=root download apptainer/sid libc6/sid)
dpkg -x "$unpacked"/apptainer_*.deb /
dpkg -x "$unpacked"/libc6_*.deb "$libc"
rm -r "$unpacked"
for program in /usr/bin/apptainer /usr/lib/*/apptainer/bin/starter; do
  patchelf --set-interpreter "$(echo "$libc"/usr/lib/*/ld-linux-*.so.*)" --set-rpath "$(echo "$libc"/usr/lib/*-linux-gnu)" "$program"
done
