"""Requests that get no answer: a status and a sentence that says what to do."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - it is no fault of the program
    """Leaves a handler as `{"error": sentence}` under `status`."""

    def __init__(self, status: int, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}
