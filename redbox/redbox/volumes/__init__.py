"""Folders of Kubernetes' volumes: made, recorded and deleted as the Unix user whom they belong to."""
