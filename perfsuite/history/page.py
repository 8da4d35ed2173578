"""Makes a page that asv published independent of other hosts: the libraries that it loads lie beside it.

asv's page asks three hosts for jQuery, Flot and Bootstrap. Behind a firewall it shows an error instead of graphs.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from perfsuite.history.commits import HistoryError
from perfsuite.report.npm import fetched

FOLDER = "libraries"
# File name in the page's address -> npm package with version, and the file in it.
LIBRARIES = {
    "jquery-3.3.1.min.js": ("jquery@3.3.1", "dist/jquery.min.js"),
    "jquery.flot.min.js": ("flot@0.8.3", "jquery.flot.js"),
    "jquery.flot.time.min.js": ("flot@0.8.3", "jquery.flot.time.js"),
    "jquery.flot.selection.min.js": ("flot@0.8.3", "jquery.flot.selection.js"),
    "jquery.flot.categories.min.js": ("flot@0.8.3", "jquery.flot.categories.js"),
    "jquery.flot.orderBars.js": ("flot-orderbars@1.0.0", "js/jquery.flot.orderBars.js"),
    "stupidtable.min.js": ("stupid-table-plugin@1.1.3", "stupidtable.min.js"),
    "md5.min.js": ("blueimp-md5@2.19.0", "js/md5.min.js"),
    "bootstrap.min.js": ("bootstrap@3.1.1", "dist/js/bootstrap.min.js"),
    "bootstrap.min.css": ("bootstrap@3.1.1", "dist/css/bootstrap.min.css"),
}
_ELSEWHERE = re.compile(r'<(script|link)\b[^>]*?(src|href)="(https?://[^"]+)"[^>]*>')


def settle(html: Path, cache: Path) -> int:
    """Put the page's libraries beside it, by npm and `cache`, and change its addresses; return their number.

    Raises HistoryError if there is no page of asv or a library is unknown, NpmError if one cannot be fetched; nothing
    is changed then.
    """
    index = html / "index.html"
    try:
        text = index.read_text(encoding="utf-8")
    except OSError as error:
        raise HistoryError(f"{html} holds no page that asv published: {error.strerror}") from None
    names = [address.rsplit("/", 1)[-1] for _, _, address in _ELSEWHERE.findall(text)]
    if unknown := [name for name in names if name not in LIBRARIES]:
        raise HistoryError(f"{index} asks for {', '.join(unknown)}, which is not known here; is this another asv?")
    files = {name: fetched(*LIBRARIES[name], cache) for name in names}
    (html / FOLDER).mkdir(exist_ok=True)
    for name, file in files.items():
        shutil.copyfile(file, html / FOLDER / name)
    index.write_text(_ELSEWHERE.sub(_beside, text), encoding="utf-8")
    return len(files)


def _beside(found: re.Match[str]) -> str:
    # The digests of the integrity attributes are of other builds of the same versions.
    tag = re.sub(r'\s(?:integrity|crossorigin|referrerpolicy)="[^"]*"', "", found[0])
    return tag.replace(found[3], f"{FOLDER}/{found[3].rsplit('/', 1)[-1]}")
