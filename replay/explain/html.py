"""A topic as one HTML file that moves: no network, no library, the pictures side by side."""

import json
from html import escape
from importlib import resources
from typing import Any

from batchspec.replay.explain.topics import Act, Topic


def topic_html(topic: Topic) -> str:
    """The whole page. Data stands in it as JSON in which nothing can end the script element."""
    template = resources.files(__package__).joinpath("topic.html").read_text(encoding="utf-8")
    data = json.dumps([_data(act) for act in topic.acts], separators=(",", ":")).replace("<", "\\u003c")
    fields = {
        "TITLE": escape(topic.title),
        "SAYS": escape(topic.says),
        "RULES": ", ".join(f"<code>{escape(rule)}</code>" for rule in topic.rules),
        "DATA": data,
    }
    for name, value in fields.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def _data(act: Act) -> dict[str, Any]:
    return {
        "title": act.title,
        "says": act.says,
        "figures": [list(pair) for pair in act.figures],
        "queue": act.grid.queue,
        "cells": [
            [
                [None if cell.request is None else str(cell.request), cell.kind, cell.ends, cell.leaves]
                for cell in row
            ]
            for row in act.grid.cells
        ],
    }
