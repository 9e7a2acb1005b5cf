# MariaDB's tables and socket where the older suites have them: the folder of tables is the controller's own.
if [ -d /var/lib/mariadb ] && [ ! -L /var/lib/mariadb ]; then
  rm -rf /var/lib/mysql
  mv /var/lib/mariadb /var/lib/mysql
fi
cat >/etc/mysql/mariadb.conf.d/98-folders.cnf <<'C'
[client-server]
socket=/run/mysqld/mysqld.sock
[mariadbd]
datadir=/var/lib/mysql
socket=/run/mysqld/mysqld.sock
pid-file=/run/mysqld/mysqld.pid
C
