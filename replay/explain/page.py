"""A topic as text."""

from typing import Final

from batchspec.replay.explain.grid import draw
from batchspec.replay.explain.topics import TOPICS, Topic
from batchspec.replay.report.page import Page

_LEGEND: Final = "capital: computes its prompt   small: decodes   /: held idle   x: interrupted   .: free"


def topic_page(topic: Topic) -> Page:
    """Pictures, figures and the rules that speak of them."""
    page = Page()
    page.add((topic.title, "bold"))
    page.wrap(topic.says)
    page.add((_LEGEND, "dim"))
    for act in topic.acts:
        page.gap()
        page.add((act.title, "bold"))
        page.wrap(act.says)
        page.gap()
        draw(page, act.grid)
        page.gap()
        width = max(len(name) for name, _ in act.figures)
        for name, value in act.figures:
            page.add(name.ljust(width), "  ", value, indent=2)
    page.gap()
    page.wrap("rules: " + ", ".join(topic.rules) + " (batchspec rules ID explains one)")
    return page


def topics_page() -> Page:
    """What can be explained."""
    page = Page()
    rows = [(name, make.__doc__.splitlines()[0] if make.__doc__ else "") for name, make in TOPICS.items()]
    page.table(("topic", "what it shows"), rows, indent=0)
    page.add("batchspec explain TOPIC shows one; --html FILE writes it as a page that moves")
    return page
