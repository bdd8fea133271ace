"""Makes the built site work without a network: its scripts load no others from the web.

The theme would load the library that draws diagrams from a CDN. `make docs` fetches it from the npm
registry instead, and the site has it as a file of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: `make docs` puts the library that draws diagrams here.
MERMAID = ROOT / "build" / "docs" / "mermaid.min.js"
#: Its place in the site.
MERMAID_URI = "assets/javascripts/mermaid.min.js"

# What the theme's script would load from the web, and what it gets. `__md_scope` is the site's
# address on each page. The second one is for browsers older than 2020.
_REPLACED = {
    re.compile(r'"https://unpkg\.com/mermaid[^"]*"'): f'new URL("{MERMAID_URI}",__md_scope).href',
    re.compile(r'"https://unpkg\.com/resize-observer-polyfill"'): '"data:,"',
}

# What a page loads from the web: scripts, style sheets, pictures; and any URL of a CDN.
_EXTERNAL = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?https?:[^\s>]+"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|icon))[^>]*\bhref=[\"']?https?:[^\s>]+"
    r"|https?://(?:unpkg\.com|cdn\.|cdnjs\.|[\w.]*jsdelivr\.net|fonts\.g)[^\s\"'`]*"
)


def without_cdn(script: str) -> str:
    """The theme's script, which loads files of the site in place of those of a CDN."""
    for url, own in _REPLACED.items():
        script = url.sub(own, script)
    return script


def external_parts(text: str) -> list[str]:
    """What a page or script of the site loads from the web."""
    return _EXTERNAL.findall(text)


def make_offline(site: Path) -> list[str]:
    """Rewrite the theme's scripts in the built site; return what is still loaded from the web."""
    for source_map in site.rglob("*.map"):
        source_map.unlink()
    for script in (site / "assets" / "javascripts").glob("bundle.*.js"):
        script.write_text(without_cdn(script.read_text()))
    return [
        f"{path.relative_to(site)}: {part}"
        for path in sorted(site.rglob("*"))
        if path.suffix in (".html", ".js", ".css")
        for part in external_parts(path.read_text())
    ]
