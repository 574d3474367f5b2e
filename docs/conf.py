"""Settings of the documentation; `make docs` builds it, and a warning is an error."""

import re
from importlib.util import find_spec

import fmtc

FEDERATION = find_spec("nvflare") is not None  # without it the pages are built, but no federation is run

project = "fmtc"
author = "The fmtc developers"
copyright = "The fmtc developers, Apache-2.0"  # noqa: A001 (the name Sphinx wants)
version = release = fmtc.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "examples"]
templates_path = ["_templates"]
nitpicky = False
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3  # so that paper.md#step-size is a link here as it is in a repository browser

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_mock_imports = [] if FEDERATION else ["nvflare", "psutil", "cryptography"]
autodoc_typehints = "none"  # the docstrings say what parameters and results are
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "tutorials/gallery",
    "filename_pattern": "/plot_" if FEDERATION else "/plot_(?!lost_silo)",
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "capture_repr": (),
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "fmtc"
html_static_path = ["_static"]
html_css_files = ["fmtc.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "fmtc"},
    "show_nav_level": 1,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
}
html_sidebars = {"index": [], "changes": [], "contributing": []}  # pages without a section


def _prepare_docstring(app, what, name, obj, options, lines):
    """Escape the bars of ||F - XW|| and |e|, which would start a substitution, and make docs/paper.md#... a link."""
    for i, line in enumerate(lines):
        code = "``" in line or line.lstrip().startswith((">>>", "..."))
        line = line if code else re.sub(r"(?<!\s)\||\|(?!\s)", r"\|", line)
        lines[i] = re.sub(r"docs/paper\.md#([\w-]+)", r":doc:`docs/paper.md#\1 </paper>`", line)


def setup(app):
    app.connect("autodoc-process-docstring", _prepare_docstring)
