"""The program `dragonrt`, which `python -m dragonrt` starts, too."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it with exit code 130, even while modules are imported."""
    try:
        from dragonrt.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
