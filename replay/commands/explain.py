"""`batchspec explain`: batching, admission, preemption and fairness, as pictures of small runs."""

from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.spec.errors import BatchspecError
from batchspec.traces.text import nearest


def explain(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="batching, admission, preemption or fairness.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write it as one HTML page that moves.")
    ] = None,
) -> None:
    """Explain a topic with pictures of small runs of the reference scheduler; without one, list them.

    Example:  batchspec explain batching --html batching.html
    """
    # The other commands start without it.
    from batchspec.replay.explain.html import topic_html
    from batchspec.replay.explain.page import topic_page, topics_page
    from batchspec.replay.explain.topics import TOPICS

    if topic is None:
        if html is not None:
            raise BatchspecError(f"--html needs a topic: {', '.join(TOPICS)}")
        console.show(topics_page())
        return
    if topic not in TOPICS:
        raise BatchspecError(f"no topic {topic!r}{nearest(topic, TOPICS)}; batchspec explain lists them")
    made = TOPICS[topic]()
    if html is None:
        console.show(topic_page(made))
        return
    Path(html).write_text(topic_html(made), encoding="utf-8")
    console.emit(f"wrote {html}\n")
