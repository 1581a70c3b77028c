"""What a person touches: the command line, designs in TOML files, and the studies.

``studykit`` is what a study imports, finds studies, runs them into folders and compares folders; ``spec_file``
reads a design from TOML; ``cli`` is the command ``mechdesign``. Names come up fast: a command imports what it needs when
it runs.

May import every other room; no room imports this one.
"""
