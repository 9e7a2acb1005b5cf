"""channel.k8s.io over WebSockets, as API servers hand them on: messages, and sessions over a connection."""
