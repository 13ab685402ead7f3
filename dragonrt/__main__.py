"""The program `dragonrt`, also as `python -m dragonrt`."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it with exit code 130, also while modules load."""
    try:
        from dragonrt.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
