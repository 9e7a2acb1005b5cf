# slurmdbd ends with unstable's own client library of MariaDB ("5027 Number of columns in result"): it gets trixie's.
mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
echo "deb $mirror trixie main" >/etc/apt/sources.list.d/trixie.list
printf 'Package: *\nPin: release n=trixie\nPin-Priority: 50\n' >/etc/apt/preferences.d/trixie
apt-get -qq update
library=/opt/mariadb-client
unpacked=$(mktemp -d)
(cd "$unpacked" && apt-get -qq -o APT::Sandbox::User=root download libmariadb3/trixie)
dpkg -x "$unpacked"/libmariadb3_*.deb "$library"
rm -r "$unpacked"
patchelf --set-rpath "$(echo "$library"/usr/lib/*-linux-gnu)" /usr/lib/*/slurm-wlm/accounting_storage_mysql.so
