"""The companion: in a small container for each job, it submits, relays output, and exits as the job did.

There is one for each job, so its start and its memory count. A third of both would go into `argparse`,
`dataclasses` (which brings `inspect`) and `importlib.metadata`: none of them is imported here. The first
`NamedTuple` costs a millisecond of some sixty, so that only `results`, which few jobs need, has one.
"""
