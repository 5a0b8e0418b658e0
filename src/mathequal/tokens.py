r"""Tokens of plain LaTeX: numbers, names, functions, operators and the words of \text{…}."""

import re
from typing import Any

from mathequal.nodes import INFINITY, PI
from mathequal.text import word_list
from mathequal.trees import ParseError
from mathequal.units import UNITS, is_spelled_unit

Token = tuple[str, Any]


def _table(text: str) -> dict[str, str]:
    """Every word of a group → the first word of the group; groups end with ` ;`."""
    return {word: group.split()[0] for group in text.split(" ;") for word in group.split()}


_SAME = _table(r"""
    * \cdot \times \ast \bullet \cdotp ; / \div ; ^ ** ; % \% ; \frac \dfrac \tfrac \cfrac \nicefrac \sfrac ;
    | \vert \lvert \rvert \mid ; \dollar \textdollar ; \gbp \pounds ; \binom \dbinom \tbinom ; \{ \lbrace ; \} \rbrace ;
    [ \lbrack ; ] \rbrack ; \| \Vert \lVert \rVert ; : \colon ; \circ \degree ;
    \sqrt \surd ; \mod \bmod \pmod ; \setminus \backslash ; \land \wedge ; \lor \vee ; \cup \bigcup ; \cap \bigcap ;
    \emptyset \varnothing \O ; \int \iint ; = == := ; < \lt ; > \gt ; <= \le \leq \leqslant \leqq ;
    >= \ge \geq \geqslant \geqq ; != \ne \neq ; ~ \approx \simeq \cong \doteq ; \to \rightarrow \mapsto \implies
    \Rightarrow ; \sim \propto ; \subset \subseteq ; \angle \measuredangle""")
_FUNCTIONS = _table("""sin sen ; cos ; tan tg ; cot ctg ; sec ; csc cosec ; sinh ; cosh ; tanh ; coth ; arcsin asin ;
    arccos acos ; arctan atan arctg ; arccot ; arcsec ; arccsc ; arsinh ; ln ; log ; lg ; exp ; gcd ; lcm ; max ; min ;
    det ; sgn ; arg ; sqrt ; abs ; cbrt ; floor ; ceil ; Re ; Im ; cis""")
FUNCTIONS = frozenset(_FUNCTIONS)
_NAMED_FUNCTIONS = {
    *word_list("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan ln log exp cis pi")
}  # \text{sin}
_AS_WRITTEN = {"re", "im", "arg", "det", "min", "max"}  # words that are a function in this spelling only
_GREEK = word_list("""alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu
    xi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega hbar ell
    partial nabla aleph Pi""")
SETS = {r"\RR": "R", r"\ZZ": "Z", r"\QQ": "Q", r"\CC": "C", r"\NN": "N", r"\emptyset": "0"}
_CONSTANTS = {"pi": PI, "infty": INFINITY, "infinity": INFINITY, "oo": INFINITY, "inf": INFINITY}
CURRENCIES = (r"\dollar", r"\euro", r"\gbp", r"\yen", r"\rupee", r"\cent")
_UNIT_LETTERS = frozenset("msghNJWKLlVCF")
LINKS = {";": ";"} | _table(r", & for if where when with ; and \& \land ; or \lor")

_TOKEN = re.compile(
    r"""\s*(?:
 (?P<rep>\d*\.\d*(?:\s*\\(?:overline|bar|dot)\ ?(?:\{\d+\}|\d)(?:\d*\\dot\ ?(?:\{\d\}|\d))?|\(\d+\)))
|(?P<num>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?!\.?\d)(?:[eE][-+]?\d{1,6}(?![\d.A-Za-z]))?)
|\x01\s*(?P<text>[^\x02]*?)\s*\x02
|\\begin\ ?\{(?P<begin>[a-zA-Z]+)\*?\}(?:\s*(?:\{[lcr|\ ]*\}|\[[lcr]\]))?
|(?P<end>\\end\ ?\{[a-zA-Z*]+\})
|(?P<break>(?:\\\\|\\cr(?![a-z]))(?:\s*\[-?[\d.]+\s*[a-z]+\])?)
|(?P<id>\\(?:vec|hat|bar|tilde|dot|ddot|overline|overrightarrow|widehat|overleftarrow|widetilde|acute)\s*
    (?:\{\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*\}|\\?[A-Za-z](?![A-Za-z]))
 |\\(?:angle|measuredangle|triangle)\s*(?:[A-Z](?:_?\{?\d?\}?\s*[A-Z]){0,3}|\d|\\?[a-z]+|\{\s*[A-Z]{2,4}\s*\})
 |\\[dt]?frac\s*\{\s*(?:d|\\partial)\s*(?:\^\s*\{?\d\}?)?\s*(?:\\?[A-Za-z]+\s*)?\}\s*\{\s*(?:d|\\partial)\s*\\?[A-Za-z]\s*(?:\^\s*\{?\d\}?)?\s*\})
|(?P<op>\\(?:[A-Za-z]+|[{}|%&\#_])|:=|<=|>=|!=|==|\*\*|[-+*/^_!|,;:()\[\]{}&%'=<>])
|(?P<word>[^\W\d_]+))""",
    re.X,
)
_SUBSCRIPT = re.compile(r"\s*_\s*(?:\{([^{}]*)\}|(\d+|[A-Za-z]|\\[A-Za-z]+|\x01[^\x02]*\x02))")
PRIMES = re.compile("'+")
_TIMES_TEN = re.compile(r"\s*[xX]\s*10\s*(?:\^|\*\*)")
_ARGUMENTS = re.compile(r"\(\s*\\?[A-Za-z0-9]+(?:\s*,\s*\\?[A-Za-z0-9]+)*\s*\)\s*(?:=|<|>|\\[lg]eq?(?![a-z]))")


def tokens(text: str, letters: bool, units: bool) -> list[Token]:
    """Tokens of plain LaTeX. letters: long words are products of letters; units: letters after a value are units."""
    found: list[Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if not match:
            raise ParseError(f"not read: {text[at]!r}")
        kind, at = str(match.lastgroup), match.end()
        value: Any = match[kind]
        if kind == "op":
            value = _SAME.get(value, value)
            name = value[1:]
            if value[0] == "\\" and name in FUNCTIONS:
                kind, value = "fn", _FUNCTIONS[name]
            elif value in (r"\pi", r"\infty"):
                kind, value = "node", _CONSTANTS[name]
            elif name in _GREEK:
                kind, value = "id", name
        elif kind == "word":
            at = match.start("word")
            if found and found[-1][0] in ("num", "rep") and _TIMES_TEN.match(text, at):
                kind, value, length = "op", "*", 1
            elif found and _ends_value(found[-1]) and (is_spelled_unit(value) or (units and value in UNITS)):
                kind, length = "text", len(value)
            else:
                kind, value, length = _word(value, letters)
            at += length
        elif kind == "text" and value in _NAMED_FUNCTIONS:
            kind, value = ("fn", _FUNCTIONS[value]) if value in _FUNCTIONS else ("node", _CONSTANTS[value])
        elif kind == "text" and value == "mod":
            kind, value = "op", r"\mod"
        elif kind == "id":
            value = re.sub(r"\\(?:measured|wide|[dt](?=frac))?|[\s{}]", "", value)
            value = value.replace("overrightarrow", "vec").replace("overline", "bar")
        if kind == "id":
            at, value = _named(text, at, value)
            after = found[-1] if found else ("eof", "")
            unit = units and value in _UNIT_LETTERS and (_ends_value(after) or after[0] == "text")
            if unit or (value == "Omega" and after[0] == "num"):
                kind = "text"
        found.append((kind, value))
    return [*found, ("eof", "")]


def _ends_value(token: Token) -> bool:
    return token[0] in ("num", "rep") or token in (("op", "}"), ("op", ")"), ("node", PI))


def _named(text: str, at: int, name: str) -> tuple[int, str]:
    """The end and the name of a symbol with its subscript, its primes, and (for a function) its bracket."""
    if subscript := _SUBSCRIPT.match(text, at):
        name += "_" + re.sub(r"[\s\x01\x02\\]", "", subscript[1] or subscript[2] or "")
        at = subscript.end()
    if primes := PRIMES.match(text, at):
        name += primes[0]
        at = primes.end()
    inverse = re.compile(r"\s*\^\s*\{\s*-1\s*\}(?=\s*\()").match(text, at)
    bracket = inverse.end() if inverse else at
    called = (name[0] in "fghFGH" and name not in _GREEK and not name.startswith("frac")) or _ARGUMENTS.match(
        text, bracket
    )
    called = called or re.compile(r"\(\s*0\s*\)").match(text, bracket)  # nobody writes a product with 0
    called = called or (name == "E" and re.match(r"[\[(] ?[XYZ]", text[bracket:]))
    if called and text[bracket : bracket + 1] in ("(", "[")[: 1 + (name == "E")]:
        return bracket + 1, f"{name}{'^-1' if inverse else ''}("
    return at, name


def _word(word: str, letters: bool) -> tuple[str, Any, int]:
    """The first token of a run of letters, and how many letters it takes."""
    low = word.lower()
    if not word.isascii():
        return "text", word, len(word)
    if word in _FUNCTIONS or (low in _FUNCTIONS and low not in _AS_WRITTEN):
        return "fn", _FUNCTIONS.get(word) or _FUNCTIONS[low], len(word)
    if word in _CONSTANTS or word in _GREEK:
        return ("node", _CONSTANTS[word], len(word)) if word in _CONSTANTS else ("id", word, len(word))
    if low in ("and", "or", "per"):
        return "text", low, len(word)
    if low == "mod":
        return "op", r"\mod", len(word)
    for name in ("arcsin", "arccos", "arctan", "sqrt", "sin", "cos", "tan", "log", "ln", "pi", "exp"):
        if word.startswith(name) and len(word) - len(name) <= 2 and not letters:
            return ("node", _CONSTANTS["pi"], 2) if name == "pi" else ("fn", name, len(name))
    in_case = len(word) < 5 and not (word.islower() or word.isupper() or word.istitle())  # mgH
    if len(word) == 1 or letters or in_case or (len(word) < 4 and not is_spelled_unit(word)):
        return "id", word[0], 1
    return "text", word, len(word)
