"""A chat, in a terminal or over HTTP, and the comparison of methods."""
