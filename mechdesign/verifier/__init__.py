"""A second opinion on result files that needs Python's standard library alone and imports nothing else of the package.

One module for each kind of law or proof. `python -m mechdesign.verifier result.json` checks a file; `archive.build` writes all
of it into one file, `verify.pyz`, for a reviewer who does not want to install anything.
"""
