"""The questions that a route cache asks name servers."""

from congreve.client.transport.route import RouteCache
from congreve.remoting.messages.bodies import TopicRouteData


def record_lookups(routes: RouteCache) -> list[str]:
    """The topics that `routes` asks name servers for from now on, one for each question."""
    asked: list[str] = []
    fetch = routes.fetch

    async def recorded(topic: str) -> TopicRouteData:
        asked.append(topic)
        return await fetch(topic)

    routes.fetch = recorded  # type: ignore[method-assign]
    return asked
