# Runs inside a new root; the arguments are packages that only Debian's unstable has. All else stays the suite's own:
# the pin keeps unstable from being chosen for anything that is not asked for or needed by what is.
mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
echo "deb [check-valid-until=no] $mirror sid main" >/etc/apt/sources.list.d/sid.list
printf 'Package: *\nPin: release n=sid\nPin-Priority: 50\n' >/etc/apt/preferences.d/sid
apt-get -qq update
for package; do set -- "$@" "$package/sid"; shift; done
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"
