"""The site of docs/."""
