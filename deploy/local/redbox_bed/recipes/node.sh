# Runs inside the new root of Kubernetes' hosts and of the switch, after its packages.
set -eu
mkdir -p /.old /var/log/bed /var/lib/etcd /var/lib/kubelet /var/lib/containerd /var/lib/cni /etc/cni /etc/kubernetes /opt/bed
