"""Run the command line: ``python -m mechdesign``."""

from mechdesign.shell.cli import main

main()
