"""The program `dragonrt`, which `python -m dragonrt` starts, too."""

import sys


def main() -> None:
    """Run the command in sys.argv. Ctrl-C ends it with code 130, even while modules load."""
    try:
        from dragonrt.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
