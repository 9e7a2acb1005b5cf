"""The site: the checkout's Markdown, the HTTP API and the examples, built by Zensical into a folder of files."""
