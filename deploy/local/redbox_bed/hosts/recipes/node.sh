# The last step of the root of Kubernetes' hosts and of the switch: folders that are mounted over on each host.
mkdir -p /.old /var/log/bed /var/lib/etcd /var/lib/kubelet /var/lib/containerd /var/lib/cni /etc/cni /etc/kubernetes /opt/bed
