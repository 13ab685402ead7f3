"""The papers' figures, drawn by this program."""
