"""Tokens to statements: the part of MATLAB's grammar that case files are written in.

Expressions are tuples whose first entry is their kind: `("number", value)`, `("name", name)`, `("call", value,
arguments)`, `("field", value, name)`, `("binary", operator, left, right)`, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feasibly.problem.matpower.tokens import MatlabError, Token

Expression = tuple[Any, ...]

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("&",),
    ("<", "<=", ">", ">=", "==", "~=", "!="),
    (":",),
    ("+", "-"),
    ("*", "/", ".*", "./"),
)
"""From what binds least to what binds most, as MATLAB has it."""


@dataclass(frozen=True)
class Statement:
    """`targets` take `value`; without targets it is a command or a value that is shown."""

    line: int
    targets: tuple[Expression, ...]
    value: Expression


@dataclass(frozen=True)
class Choice:
    """`if`, each `elseif`, and `else` (whose condition is `None`), with the statements under each."""

    line: int
    branches: tuple[tuple[Expression | None, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Program:
    """What a function file computes, in order, and what it hands back."""

    outputs: tuple[str, ...]
    body: tuple[Any, ...]


_REFUSED = (
    "for",
    "while",
    "switch",
    "try",
    "parfor",
    "global",
    "persistent",
    "classdef",
    "unwind_protect",
    "do",
)


def parse(tokens: Sequence[Token]) -> Program:
    """The program that `tokens` spell.

    Raises:
        MatlabError: at what is not understood, with its line.
    """
    return _Parser(tokens).program()


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens, self.place = tokens, 0
        self.brackets: list[str] = []

    # ---- moving on -------------------------------------------------------------------------------------

    @property
    def now(self) -> Token:
        return self.tokens[min(self.place, len(self.tokens) - 1)]

    @property
    def done(self) -> bool:
        return self.place >= len(self.tokens)

    def take(self) -> Token:
        token = self.now
        self.place += 1
        return token

    def sees(self, *values: str) -> bool:
        return not self.done and self.now.kind in ("op", "end") and self.now.value in values

    def expect(self, value: str) -> Token:
        if not self.sees(value):
            raise self.wrong(f"{value!r} is expected here")
        return self.take()

    def wrong(self, what: str) -> MatlabError:
        shown = "the end of the line" if self.now.kind == "end" else repr(self.now.value)
        if self.now.kind in ("table", "names"):
            shown = "a table"
        return MatlabError(self.now.line, f"{what}, not {shown}")

    def word(self, *names: str) -> bool:
        return not self.done and self.now.kind == "name" and self.now.value in names

    def skip_ends(self) -> None:
        while not self.done and self.now.kind == "end":
            self.take()

    # ---- statements ------------------------------------------------------------------------------------

    def program(self) -> Program:
        self.skip_ends()
        outputs: tuple[str, ...] = ()
        if self.word("function"):
            self.take()
            outputs = self.header()
        body = self.block(("function",))
        return Program(outputs, tuple(body))  # a second function runs only when called, which is refused

    def header(self) -> tuple[str, ...]:
        names = []
        if self.sees("["):
            self.take()
            while not self.sees("]"):
                if self.now.kind == "name":
                    names.append(str(self.take().value))
                else:
                    self.expect(",")
            self.take()
        elif self.now.kind == "name":
            names.append(str(self.take().value))
        self.expect("=")
        if self.now.kind != "name":
            raise self.wrong("the name of the function is expected")
        self.take()
        if self.sees("("):
            self.take()
            if not self.sees(")"):
                raise self.wrong("a case with arguments is not read; a grid file takes none")
            self.take()
        self.end()
        return tuple(names)

    def block(self, stops: tuple[str, ...]) -> list[Any]:
        found: list[Any] = []
        while True:
            self.skip_ends()
            if self.done or self.word(*stops):
                return found
            if self.word("end", "endfunction", "return"):
                # The end of the function: what follows may only be other functions.
                token = self.take()
                self.skip_ends()
                if token.value == "return" or self.done or self.word("function"):
                    while not self.done and not self.word(*stops):
                        self.take()
                    return found
                raise MatlabError(token.line, f"{token.value!r} ends nothing here")
            found.append(self.statement())

    def statement(self) -> Any:
        token = self.now
        if self.word("if"):
            return self.choice()
        if self.word(*_REFUSED):
            raise MatlabError(token.line, f"{token.value!r} is not computed here")
        start = self.place
        if self.sees("["):
            targets = self.several_targets()
            if targets is not None:
                value = self.expression()
                self.end()
                return Statement(token.line, targets, value)
            self.place = start
        value = self.expression()
        if self.sees("="):
            self.take()
            if not _is_target(value):
                raise MatlabError(token.line, "only a name, a field or a part of one can be set")
            right = self.expression()
            self.end()
            return Statement(token.line, (value,), right)
        if value[0] == "name" and self.now.kind == "name" and not self.now.line != token.line:
            raise MatlabError(token.line, f"the command {value[1]!r} is not computed here")
        self.end()
        return Statement(token.line, (), value)

    def several_targets(self) -> tuple[Expression, ...] | None:
        """`[a, b] = ...`, or `None` where the bracket is a table."""
        depth = 0
        for i in range(self.place, len(self.tokens)):
            value = self.tokens[i].value if self.tokens[i].kind == "op" else None
            depth += (value == "[") - (value == "]")
            if depth == 0:
                after = self.tokens[i + 1]
                if after.kind != "op" or after.value != "=":
                    return None
                break
        self.take()
        self.brackets.append("[")
        found = []
        while not self.sees("]"):
            if self.sees("~"):
                self.take()
                found.append(("name", "~"))
            else:
                target = self.postfix()
                if not _is_target(target):
                    raise self.wrong("a name is expected")
                found.append(target)
            if self.sees(","):
                self.take()
        self.brackets.pop()
        self.take()
        self.expect("=")
        return tuple(found)

    def choice(self) -> Choice:
        line = self.take().line
        condition: Expression | None = self.expression()
        branches = []
        while True:
            body = []
            while True:
                self.skip_ends()
                if self.done:
                    raise MatlabError(line, "'if' has no 'end'")
                if self.word("elseif", "else", "end", "endif"):
                    break
                body.append(self.statement())
            branches.append((condition, tuple(body)))
            word = self.take()
            if word.value in ("end", "endif"):
                return Choice(line, tuple(branches))
            condition = self.expression() if word.value == "elseif" else None

    def end(self) -> None:
        if not self.done and self.now.kind != "end":
            raise self.wrong("the statement should end here")
        if not self.done:
            self.take()

    # ---- expressions -----------------------------------------------------------------------------------

    def expression(self, level: int = 0) -> Expression:
        if level == len(_LEVELS):
            return self.unary()
        left = self.expression(level + 1)
        while self.sees(*_LEVELS[level]) and self.now.kind == "op" and not self.starts_a_cell():
            if _LEVELS[level] == (":",) and self.closes_after_colon():
                break
            operator = str(self.take().value)
            left = ("binary", operator, left, self.expression(level + 1))
        return left

    def starts_a_cell(self) -> bool:
        """`[1 -2]`: a sign after a space and before none begins the next cell."""
        if not self.brackets or self.brackets[-1] == "(" or self.now.value not in ("+", "-"):
            return False
        return self.now.spaced and not self.tokens[self.place + 1].spaced

    def closes_after_colon(self) -> bool:
        after = self.tokens[self.place + 1]
        return after.kind == "op" and after.value in (")", ",")

    def unary(self) -> Expression:
        if self.sees("-", "+", "~", "!"):
            operator = str(self.take().value)
            return ("unary", operator, self.unary())
        return self.power()

    def power(self) -> Expression:
        base = self.postfix()
        while self.sees("^", ".^"):
            operator = str(self.take().value)
            if self.sees("-", "+"):
                sign = str(self.take().value)
                base = ("binary", operator, base, ("unary", sign, self.postfix()))
            else:
                base = ("binary", operator, base, self.postfix())
        return base

    def postfix(self) -> Expression:
        value = self.primary()
        while True:
            inside = bool(self.brackets) and self.brackets[-1] != "("
            if self.sees("(") and not (inside and self.now.spaced):
                line = self.take().line
                value = ("call", value, self.arguments(), line)
            elif self.sees("{") and not inside:
                raise MatlabError(self.now.line, "a part of a cell array is not computed here")
            elif self.sees(".") and not self.now.spaced:
                self.take()
                if self.now.kind != "name":
                    raise self.wrong("the name of a field is expected")
                value = ("field", value, str(self.take().value))
            elif self.sees("'", ".'"):
                self.take()
                value = ("transpose", value)
            else:
                return value

    def arguments(self) -> tuple[Expression, ...]:
        self.brackets.append("(")
        found: list[Expression] = []
        while not self.sees(")"):
            if self.sees(":") and self.closes_after_colon():
                self.take()
                found.append(("all",))
            else:
                found.append(self.expression())
            if not self.sees(")"):
                self.expect(",")
        self.brackets.pop()
        self.take()
        return tuple(found)

    def primary(self) -> Expression:
        token = self.now
        if self.done:
            raise MatlabError(token.line, "the file ends in the middle of a statement")
        if token.kind in ("number", "string", "table", "names"):
            self.take()
            return (token.kind, token.value)
        if token.kind == "name":
            self.take()
            return ("name", str(token.value), token.line)
        if self.sees("("):
            self.take()
            self.brackets.append("(")
            value = self.expression()
            self.brackets.pop()
            self.expect(")")
            return ("group", value)
        if self.sees("["):
            return ("matrix", self.rows("]"), token.line)
        if self.sees("{"):
            return ("cell", self.rows("}"), token.line)
        if self.sees("@"):
            self.take()
            return ("handle", self.unary())
        raise self.wrong("a value is expected")

    def rows(self, close: str) -> tuple[tuple[Expression, ...], ...]:
        self.brackets.append(str(self.take().value))
        rows: list[tuple[Expression, ...]] = []
        row: list[Expression] = []
        separated = True
        while not self.sees(close):
            if self.done:
                raise self.wrong(f"{close!r} is expected")
            if self.sees(";", "\n"):
                self.take()
                if row:
                    rows.append(tuple(row))
                row, separated = [], True
            elif self.sees(","):
                if separated:
                    raise self.wrong("a value is expected")
                self.take()
                separated = True
            else:
                if not separated and not self.now.spaced:
                    raise self.wrong("a space or a comma is expected between two values")
                row.append(self.expression())
                separated = False
        self.brackets.pop()
        self.take()
        if row:
            rows.append(tuple(row))
        return tuple(rows)


def _is_target(value: Expression) -> bool:
    if value[0] == "name":
        return True
    return value[0] in ("field", "call") and _is_target(value[1])
