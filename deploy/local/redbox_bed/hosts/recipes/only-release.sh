# Unstable has one release of Slurm at a time; $release is the one that this root is for.
found=$(slurmctld -V)
case $found in
  *" ${release:?}."*) ;;
  *) echo "Debian's unstable has $found now, not $release"; exit 1 ;;
esac
