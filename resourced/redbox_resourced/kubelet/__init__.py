"""The kubelet API of virtual nodes: its listener, authorization, logs and statistics."""
