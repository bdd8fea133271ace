"""SQL92 filter expressions: from text to a FilterProgram (RocketMQ: SelectorParser).

The grammar and its errors are the reference's, with two peculiarities: parsing ends at the first
word that cannot continue a complete expression (`a = 1 garbage` is `a = 1`), and an expression need
not be a comparison (`NOT a` is true if `a` exists).
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from functools import cache
from math import isinf
from typing import NamedTuple

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from congreve.base.steps import at_once
from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.program import FilterProgram, Op

EXPRESSION_MAX = 64 * 1024
"""Most characters of an expression; a long one causes a StackOverflowError in the reference."""

# BETWEEN repeats its operand, so a few words can become many instructions.
CODE_MAX = 2_048
DEPTH_MAX = 512
"""Most open parts of an expression: brackets, signs, values on the stack."""
TEXTS_MAX = 2_048
"""Most texts of one IN."""
_INTEGER_MAX = 2**31 - 1
_LONG_DIGITS = 19
_LONG_MAX = 2**63 - 1

_KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})

_GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction
    | disjunction OR conjunction                   -> either
?conjunction: equality
    | conjunction AND equality                     -> both
?equality: comparison
    | equality EQUAL comparison                    -> equal
    | equality DIFFERS comparison                  -> differs
    | equality IS NULL                             -> is_null
    | equality IS NOT NULL                         -> is_not_null
?comparison: unary
    | comparison ORDER unary                       -> ordered
    | comparison BETWEEN unary AND unary           -> between
    | comparison NOT BETWEEN unary AND unary       -> not_between
    | comparison IN texts                          -> is_in
    | comparison NOT IN texts                      -> not_in
texts: "(" STRING ("," STRING)* ")"
?unary: primary
    | "+" unary
    | MINUS unary                                  -> negative
    | NOT unary                                    -> negation
?primary: STRING                                   -> text
    | DECIMAL                                      -> decimal
    | FLOAT                                        -> floating
    | TRUE                                         -> true
    | FALSE                                        -> false
    | NULL                                         -> null
    | NAME                                         -> name
    | "(" disjunction ")"

%declare NOT AND OR BETWEEN IN TRUE FALSE NULL IS
EQUAL: "="
DIFFERS.2: "<>"
ORDER: ">=" | "<=" | ">" | "<"
MINUS: "-"
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
FLOAT.2: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
STRING: /'[^']*+(?:''[^']*+)*+'/
LINE_COMMENT.3: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
SPACE: /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore SPACE
"""

Argument = int | float | bytes | tuple[bytes, ...] | None
Instruction = tuple[Op, Argument]

_ORDERS = {
    ">": Op.GREATER,
    ">=": Op.GREATER_EQUAL,
    "<": Op.LESS,
    "<=": Op.LESS_EQUAL,
}


class _Kind(Enum):
    """The kinds of expressions that the type rules distinguish."""

    PROPERTY = auto()
    NUMBER = auto()
    TEXT = auto()
    BOOLEAN_CONSTANT = auto()  # NULL too
    BOOLEAN = auto()
    NEGATIVE = auto()


class _Code(NamedTuple):
    """Instructions as a tree of their parts, because copying them at each step is quadratic."""

    parts: tuple[_Code | Instruction, ...]
    length: int

    def flat(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        waiting: list[_Code | Instruction] = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part, _Code):
                waiting.extend(reversed(part.parts))
            else:
                instructions.append(part)
        return instructions


def _one(op: Op, argument: Argument = None) -> _Code:
    return _Code(((op, argument),), 1)


_NOTHING = _one(Op.NOTHING)


class _Node(NamedTuple):
    """A parsed expression: its instructions and the stack depth that they need."""

    kind: _Kind
    code: _Code
    depth: int = 1
    value: int | float | None = None  # of a number


def _joined(kind: _Kind, depth: int, *parts: _Code) -> _Node:
    code = _Code(parts, sum(part.length for part in parts))
    if code.length > CODE_MAX:
        raise FilterSyntaxError(f"the expression needs more than {CODE_MAX} instructions")
    if depth > DEPTH_MAX:
        raise FilterSyntaxError(f"the expression is nested deeper than {DEPTH_MAX}")
    return _Node(kind, code, depth)


def _with(node: _Node, op: Op, kind: _Kind = _Kind.BOOLEAN) -> _Node:
    return _joined(kind, node.depth, node.code, _one(op))


def _two(left: _Node, right: _Node, op: Op, skip: Op | None = None) -> _Node:
    """The instructions of left, right and op; `skip` skips the rest if left decides the result."""
    parts = [left.code, right.code, _one(op)]
    if skip is not None:
        parts.insert(1, _one(skip, right.code.length + 1))
    return _joined(_Kind.BOOLEAN, max(left.depth, right.depth + 1), *parts)


def _fault(token: Token, text: str) -> FilterSyntaxError:
    return FilterSyntaxError(f"{text} (at line {token.line}, column {token.column})")


def _boolean(node: _Node, near: Token | None) -> _Node:
    """RocketMQ: asBooleanExpression."""
    if node.kind is _Kind.PROPERTY:
        return _with(node, Op.CAST)
    if node.kind in (_Kind.BOOLEAN, _Kind.BOOLEAN_CONSTANT):
        return node
    text = "a number or string alone is not a condition"
    raise FilterSyntaxError(text) if near is None else _fault(near, text)


def _decoded(token: Token) -> bytes:
    """The text between the quotes; a doubled quote becomes one."""
    return token[1:-1].replace("''", "'").encode(errors="replace")


def _ordered(left: _Node, sign: str, right: _Node, near: Token) -> _Node:
    for operand in (left, right):
        if operand.kind not in (_Kind.PROPERTY, _Kind.NUMBER, _Kind.NEGATIVE):
            raise _fault(near, f"{near} compares only properties and numbers")
    return _two(left, right, _ORDERS[sign], Op.SKIP_IF_NULL)


def _either(left: _Node, right: _Node) -> _Node:
    return _two(left, right, Op.OR, Op.SKIP_IF_TRUE)


def _both(left: _Node, right: _Node) -> _Node:
    return _two(left, right, Op.AND, Op.SKIP_IF_FALSE)


@v_args(inline=True)
class _Compiler(Transformer[Token, _Node]):
    """Builds instructions; the parser calls it with the parts of each rule."""

    def either(self, left: _Node, sign: Token, right: _Node) -> _Node:
        return _either(_boolean(left, sign), _boolean(right, sign))

    def both(self, left: _Node, sign: Token, right: _Node) -> _Node:
        return _both(_boolean(left, sign), _boolean(right, sign))

    def equal(self, left: _Node, sign: Token, right: _Node) -> _Node:
        for operand in (left, right):
            if operand.code == _NOTHING:
                raise _fault(sign, "NULL cannot be compared; use IS NULL or IS NOT NULL")
        if left.kind is _Kind.BOOLEAN_CONSTANT and right.kind in (_Kind.NUMBER, _Kind.TEXT):
            raise _fault(sign, "TRUE and FALSE cannot be compared with a number or string")
        return _two(left, right, Op.EQUAL)

    def differs(self, left: _Node, sign: Token, right: _Node) -> _Node:
        return _with(self.equal(left, sign, right), Op.NOT)

    def is_null(self, left: _Node, *_words: Token) -> _Node:
        return _two(left, self.null(), Op.EQUAL)

    def is_not_null(self, left: _Node, *_words: Token) -> _Node:
        return _with(self.is_null(left), Op.NOT)

    def ordered(self, left: _Node, sign: Token, right: _Node) -> _Node:
        return _ordered(left, sign, right, sign)

    def between(self, value: _Node, word: Token, low: _Node, _and: Token, high: _Node) -> _Node:
        if low.value is not None and high.value is not None and high.value < low.value:
            raise _fault(word, f"BETWEEN {low.value} AND {high.value}: the first is larger")
        return _both(_ordered(value, ">=", low, word), _ordered(value, "<=", high, word))

    def not_between(
        self, value: _Node, word: Token, _between: Token, low: _Node, _and: Token, high: _Node
    ) -> _Node:
        return _either(_ordered(value, "<", low, word), _ordered(value, ">", high, word))

    def is_in(self, left: _Node, word: Token, texts: tuple[bytes, ...]) -> _Node:
        return self._in(left, word, Op.IN, texts)

    def not_in(self, left: _Node, word: Token, _in: Token, texts: tuple[bytes, ...]) -> _Node:
        return self._in(left, word, Op.NOT_IN, texts)

    def _in(self, left: _Node, word: Token, op: Op, texts: tuple[bytes, ...]) -> _Node:
        if left.kind is not _Kind.PROPERTY:
            raise _fault(word, "IN needs a property before it")
        return _joined(_Kind.BOOLEAN, 1, left.code, _one(op, texts))

    def texts(self, *tokens: Token) -> tuple[bytes, ...]:
        if len(tokens) > TEXTS_MAX:
            raise _fault(tokens[0], f"IN has {len(tokens)} texts: use at most {TEXTS_MAX}")
        return tuple(_decoded(token) for token in tokens)

    def negative(self, _sign: Token, operand: _Node) -> _Node:
        return _with(operand, Op.NEGATE, _Kind.NEGATIVE)

    def negation(self, word: Token, operand: _Node) -> _Node:
        return _with(_boolean(operand, word), Op.NOT)

    def text(self, token: Token) -> _Node:
        return _Node(_Kind.TEXT, _one(Op.STRING, _decoded(token)))

    def decimal(self, token: Token) -> _Node:
        # Python refuses to parse thousands of digits.
        number = int(token.rstrip("lL")[: _LONG_DIGITS + 1])
        if number > _LONG_MAX:
            raise _fault(token, f"{token[:40]} is larger than {_LONG_MAX}")
        op = Op.INTEGER if number <= _INTEGER_MAX else Op.LONG
        return _Node(_Kind.NUMBER, _one(op, number), value=number)

    def floating(self, token: Token) -> _Node:
        number = float(token)
        if isinf(number) or number == 0:
            raise _fault(token, f"{token} is not between 4.9E-324 and 1.7976931348623157E308")
        return _Node(_Kind.NUMBER, _one(Op.DOUBLE, number), value=number)

    def true(self, _token: Token) -> _Node:
        return _Node(_Kind.BOOLEAN_CONSTANT, _one(Op.TRUE))

    def false(self, _token: Token) -> _Node:
        return _Node(_Kind.BOOLEAN_CONSTANT, _one(Op.FALSE))

    def null(self, *_token: Token) -> _Node:
        return _Node(_Kind.BOOLEAN_CONSTANT, _NOTHING)

    def name(self, token: Token) -> _Node:
        return _Node(_Kind.PROPERTY, _one(Op.PROPERTY, token.encode()))


def _keyword(token: Token) -> Token:
    """The keyword token for a name that is a keyword, in any case."""
    upper = token.upper()
    return token.update(type=upper) if upper in _KEYWORDS else token


@cache
def _parser() -> Lark:
    """The parser of the grammar, which keeps nothing of an expression; it takes 15 ms to build."""
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        transformer=_Compiler(),
        lexer_callbacks={"NAME": _keyword},
    )


class FilterCompiler:
    """Compiles expressions to programs; not thread-safe (RocketMQ: SqlFilter)."""

    def __init__(self) -> None:
        self._lark = _parser()

    def compile(self, expression: str) -> FilterProgram:
        """The program of an expression. Raises FilterSyntaxError with line and column."""
        return at_once(self.steps(expression))

    def steps(self, expression: str) -> Generator[None, None, FilterProgram]:
        """compile() as a generator: its caller may do other work between two words."""
        if len(expression) > EXPRESSION_MAX:
            raise FilterSyntaxError(
                f"the expression has {len(expression)} characters: use at most {EXPRESSION_MAX}"
            )
        try:
            node = _boolean((yield from self._read(expression)), None)
        except UnexpectedToken as error:
            what = "unexpected end" if error.token.type == "$END" else f"unexpected {error.token!s}"
            raise FilterSyntaxError(
                f"{what} (at line {error.line}, column {error.column}); expected one of:"
                f" {', '.join(sorted(error.expected))}"
            ) from error
        except UnexpectedInput as error:
            raise FilterSyntaxError(
                f"invalid character at line {error.line}, column {error.column}"
            ) from error
        return FilterProgram(node.code.flat(), node.depth)

    def _read(self, expression: str) -> Generator[None, None, _Node]:
        """Parse the longest prefix that is an expression."""
        parser = self._lark.parse_interactive(expression)
        last = Token("$END", "", line=1, column=1)
        for token in parser.lexer_thread.lex(parser.parser_state):
            try:
                parser.feed_token(token)
            except UnexpectedToken as error:
                try:
                    node: _Node = parser.feed_eof(last)
                except UnexpectedToken:
                    raise error from None
                return node
            if len(parser.parser_state.value_stack) > DEPTH_MAX:
                raise _fault(token, f"the expression is nested deeper than {DEPTH_MAX}")
            yield
            last = token
        node = parser.feed_eof(last)
        return node
