# Makes Debian's unstable known to apt, for single packages that the suite lacks. The pin keeps it from being chosen
# for anything that is not asked for.
mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
echo "deb [check-valid-until=no] $mirror sid main" >/etc/apt/sources.list.d/sid.list
printf 'Package: *\nPin: release n=sid\nPin-Priority: 50\n' >/etc/apt/preferences.d/sid
apt-get -qq update
