# The last step of a new Slurm root; $1 is the folder with pingpong.c.

# Apptainer is what `singularity` has become; Debian's package leaves that name out.
[ -e /usr/bin/singularity ] || ln -s apptainer /usr/bin/singularity

# MPI over the bed's one network, and a program to see it work. Debian's file ends in the middle of a line.
mpicc -O1 -o /usr/local/bin/pingpong "$1/pingpong.c"
printf '\nbtl_tcp_if_include = eth0\n' >>/etc/openmpi/openmpi-mca-params.conf

# No PAM session: it would want limits that a container may not set. Keys only.
printf 'UsePAM no\nPasswordAuthentication no\nUseDNS no\nPrintMotd no\n' >/etc/ssh/sshd_config.d/bed.conf
rm -f /etc/ssh/ssh_host_*

# slurmdbd reaches MariaDB over its socket as the Unix user "slurm", without a password.
cat >/etc/mysql/mariadb.conf.d/99-bed.cnf <<'C'
[mariadbd]
skip-networking
innodb_buffer_pool_size=128M
innodb_log_file_size=32M
innodb_lock_wait_timeout=900
innodb_flush_log_at_trx_commit=2
# On by default from 11.6 on; slurmdbd ends where a write conflicts with another transaction.
loose_innodb_snapshot_isolation=OFF
C

# Folders that are mounted over on each host.
mkdir -p /.old /srv/home /var/log/bed
install -d -o slurm -g slurm /var/spool/slurmctld /var/lib/slurm
install -d /var/spool/slurmd
install -d -m 700 -o redbox -g redbox /var/lib/redbox
rm -f /etc/munge/munge.key
