"""exec, attach and portForward of the kubelet API: from SPDY streams to red-box's sessions in a job."""
