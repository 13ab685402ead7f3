"""Tools for tests: virtual time, scripted models, links that fail, and checks of backends."""
