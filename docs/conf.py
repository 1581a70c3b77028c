"""The documentation: guides by task, theory, reference pages made from the code, an executed gallery.

Nothing is fetched while building, and the pages fetch nothing when they are read.
"""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("MPLBACKEND", "Agg")

import mechdesign  # noqa: E402
from mechdesign.verifier import archive  # noqa: E402

project = "mechdesign"
author = "the mechdesign authors"
version = release = mechdesign.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "prose",
    "generated",
    "pictures",
    "browser_python",
]
exclude_patterns = ["_build", "_templates", "gallery/README.txt", "gallery/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "py:obj"
suppress_warnings = ["config.cache"]  # the gallery's settings hold a class

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # the docstrings state shapes and units, which annotations cannot
autodoc_default_options = {"exclude-members": "__init__, __new__"}
numpydoc_show_class_members = False
numpydoc_validation_checks = set()
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
smartquotes_action = "qe"  # quotes and ellipses; the two hyphens of an option stay two
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "mechdesign"
html_static_path = ["_static"]
html_extra_path = [
    tempfile.mkdtemp(),  # the stand-alone verifier, for who does not install the package; a page of evidence
    "wire-vectors.json",
]
archive.build(Path(html_extra_path[0], "verify.pyz"))
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "collapse_navigation": True,  # every page would carry the whole tree
}
html_sidebars = {
    "index": [],
    "ten_minutes": [],
    "checker": [],
    "limits": [],
    "changelog": [],
    "contributing": [],
}
html_sidebars |= {"generated/api/mechdesign.*": []}  # an object's page leads up to its wing's
html_copy_source = False
copyright = "the mechdesign authors, Apache-2.0"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "plot_gallery": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1000,
    "write_computation_times": False,
    "remove_config_comments": True,
    "nested_sections": False,
    "thumbnail_size": (600, 420),
}
