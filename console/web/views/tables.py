"""The Iceberg tables of topics: messages, files, bytes, the last commit, and the lag."""

from starlette.responses import Response

from congreve.base.errors import CongreveError
from congreve.console.web.pages import Visit


async def tables(visit: Visit) -> Response:
    """The tables of `--lake`, for accounts that may read the list of topics."""
    await visit.cluster.snapshot()
    options = visit.options
    rows, error = [], None
    try:
        rows = await visit.tables.rows()
    except CongreveError as failure:
        error = str(failure)
    return visit.page("tables.html", rows=rows, error=error, lake=options.lake, store=options.store)
