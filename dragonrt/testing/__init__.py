"""Virtual time, scripted models, links that fail: to test with."""
