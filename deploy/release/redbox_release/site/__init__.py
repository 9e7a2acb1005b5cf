"""The site: the checkout's Markdown, the HTTP API and the examples, built by Zensical."""
