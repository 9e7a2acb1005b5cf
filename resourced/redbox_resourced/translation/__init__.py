"""From a Kubernetes Pod to a job's request: pure, without a question to any API.

`pod.translate` walks `fields` first, so that nothing in a pod is ignored without a word.
"""
