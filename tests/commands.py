"""The command line, run in this process as a user would run it."""

import sys

import pytest


def ended(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    """Exit code, and what was written to standard output and standard error."""
    from mechdesign.shell.cli import main

    monkeypatch.setattr(sys, "argv", ["mechdesign", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err
