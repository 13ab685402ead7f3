"""`python -m dragonrt` is `dragonrt`."""

from dragonrt.cli import main

main()
