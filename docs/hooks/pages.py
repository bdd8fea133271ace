"""What MkDocs adds to the pages of docs/: the reference, files from other folders, scripts.

README.md, CHANGELOG.md and others become pages of the site. A link from any page to a file
that is not a page becomes the file's name, because the site does not contain the sources.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import offline
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

#: Files outside docs/, and where they are in the site.
FROM_ELSEWHERE = {
    "README.md": "index.md",
    "bench/README.md": "benchmarks.md",
    "deploy/README.md": "deployment.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "bench/results/family.png": "images/family.png",
}
_SOURCE_OF = {page: source for source, page in FROM_ELSEWHERE.items()}

# A link or picture; links to the web and within the page do not match.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {f"reference/{name}": text for name, text in reference.pages().items()}
    made |= {f"reference/api/{page}.md": text for page, text in reference.api_pages().items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    if not offline.MERMAID.is_file():
        raise PluginError(f"{offline.MERMAID} is missing: build the site with `make docs`")
    files.append(File.generated(config, offline.MERMAID_URI, abs_src_path=str(offline.MERMAID)))
    for source, name in FROM_ELSEWHERE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    folder = posixpath.dirname(_SOURCE_OF.get(uri, f"docs/{uri}"))

    def relinked(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        place = FROM_ELSEWHERE.get(path) or path.removeprefix("docs/")
        if path in FROM_ELSEWHERE or path.startswith("docs/"):
            place = posixpath.relpath(place, posixpath.dirname(uri) or ".")
            return f"{picture}[{text}]({place}{anchor})"
        return (
            text if text.startswith("`") else f"{text} (`{path}`)" if text != path else f"`{path}`"
        )

    return _LINK.sub(relinked, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    if external := offline.make_offline(Path(config.site_dir)):
        raise PluginError("the site loads from the web: " + ", ".join(external))
