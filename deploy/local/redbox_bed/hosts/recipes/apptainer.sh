# Apptainer from unstable, where the suite's own C library is new enough for it.
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends apptainer/sid
