"""The command line, designs in TOML files, and the studies.

Studies import ``studykit``, which finds them, runs them into folders and compares folders; ``spec_file``
reads a design from TOML; ``cli`` is the command ``mechdesign``. Help and lists appear fast: a command imports what it needs
when it runs.

May import every other room; no room imports this one.
"""
