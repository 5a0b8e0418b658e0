"""Notations of mathematics and their usual spelling in LaTeX, in the order of their replacement."""

import re
import unicodedata

from mathequal.rulebook import table

_OPERATORS = {
    *re.findall(
        r"\w+",
        """sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc arsinh
    ln log lg exp gcd lcm max min det sgn arg re im cis deg dim asin acos atan
        tg ctg sen arctg arcctg cosec abs floor ceil sqrt cbrt var cov tr ker rank""",
    )
}
_AGAIN = r"[dtc]?frac|sqrt|left|right|[lg]eq?|pi|text|cup|cap|infty|times|cdot|mathbb|pm|in|begin|end|circ|alpha|theta"
_ROWS = r"\\begin ?\{(array|aligned|matrix)\}(?: ?\{[lcr| ]*\})?(.*?)\\end ?\{\1\}"
_VECTOR = r"(d? ?\\(?:vec|overrightarrow|mathbf|boldsymbol|bm) ?(?:\{ ?[A-Za-z]+ ?\}|[A-Za-z]))"


_MARK = (
    r"(?:\{(?:,|\\,)\}(?:\\!)?|\\!,(?:\s*\\!)?|,\s*\\!|\\[,:;>]|~|\\(?:thin|med|thick)space(?![a-z])|\\text\{,\}|')\s*"
)
"""What parts the digits of one number into groups."""


_ACCENTS = dict(zip("'`\"^~", "\u0301\u0300\u0308\u0302\u0303", strict=True))


def _accented(letter: re.Match[str]) -> str:
    r"""The letter of \'i and \~{n}."""
    return unicodedata.normalize("NFC", (letter[2] or letter[3]) + _ACCENTS[letter[1]])


_OTHER_NAMES = dict(sh="sinh", ch="cosh", cth="coth", arctg="arctan", arcctg="arccot", tg="tan", ctg="cot", cotg="cot",
                    sen="sin", arcsen="arcsin", arsh="arsinh", cosec="csc")  # fmt: skip
"""Functions by the names that other countries use."""


def _operator_name(name: re.Match[str]) -> str:
    return rf"\{name[1]} " if name[1].lower() in _OPERATORS else rf"\text{{{name[1]}}}"


_OPPOSITE = {
    "> ngtr": r"\le ", "< nless": r"\ge ", r"\ge \geq \geqslant ngeq": "<", r"\le \leq \leqslant nleq": ">"
}  # fmt: skip
_BLANKS = r"(?: |\\[,;:! ])*"
_COORDINATE = r"-? ?(?:[\d.]+(?: ?/ ?\d+)?|\\[dt]?frac ?\{ ?\d+ ?\} ?\{ ?\d+ ?\})"


LONE_DOLLAR = r"(?:(\s*(?:[A-Z]{1,2} ?)?[-+]?\s*)\$(?=\s*[\d.])([^$\\]*)|(\s*[-+]?\d[\d.,]*)\$(\s*))"
r"""A dollar sign that is no delimiter of a formula, but the currency: $34 and 34$."""


SPELLING = table((
    ("money.lone-dollar", "$", rf"\A{LONE_DOLLAR}\Z", r"\1\3\\dollar \2\4"),
    ("html.font", "</", r"<(b|i|em|strong|p|span|code)>(.*?)</\1>", r"\2"),
    ("html.superscript", "<sup>", r"<sup>(.*?)</sup>", r"^{\1}"),
    ("html.subscript", "<sub>", r"<sub>(.*?)</sub>", r"_{\1}"),
    ("marks.emphasis", "", r"\A\s*(\*{1,3}|[`'\x22]|__)(.+)\1\s*\Z", r"\2"),
    ("marks.escaped-twice", "\\\\", rf"(?<!\\)\\\\(?=(?:{_AGAIN})(?![A-Za-z]))", r"\\"),
    ("marks.tex-accent", "\\", r"\\(['`\"^~])(?:\{\\?([A-Za-z])(?:math)?\}|([A-Za-z]))", _accented),
    ("degrees.textdegree", r"\text", r"\\textdegree(?![a-z])", r"^\\circ "),
    ("fonts.old", "{", r"\{ ?\\(?:rm|bf|it|sf|tt) ", r"\\text{"),
    ("marks.qty", r"\qty", r"\\qty(?![A-Za-z]) ?(?=[(\[|])", ""),
    ("rows.equations", "{array}",
        r"\A\s*\\begin ?\{array\} ?\{ ?[lcr] ?\}((?:(?!\\begin)(?!&).)*=(?:(?!\\begin)(?!&).)*)\\end ?\{array\}\s*\Z",
        r"\\begin{aligned}\1\\end{aligned}"),
    ("rows.plain-tex", "matrix",
        r"\\([pbvB]?matrix) ?\{((?:[^{}]|\{[^{}]*\})*)\}",
        lambda found: rf"\begin{{{found[1]}}}{found[2].replace(chr(92) + 'cr', chr(92) * 2)}\end{{{found[1]}}}"),
    ("rows.braced", r"\left", rf"\\left ?\\\{{ ?{_ROWS} ?\\right ?\.", r"\\begin{cases}\2\\end{cases}"),
    ("brackets.sized", "\\", r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\s*\.?", ""),
    ("brackets.lone", "{",
        r"(?<![_^A-Za-z} \]])\{ ?(\\[A-Za-z]+(?= ?\} ?[_^])|[A-Za-z](?= ?\} ?[_^])|[-+=:]) ?\}",
        r"\1"),
    ("binomial.scripts", "C", r"(?:\{ ?\} ?)?[_^] ?\{? ?(\w+) ?\}? ?C ?_ ?\{? ?(\w+) ?\}?", r"\\binom{\1}{\2}"),
    ("binomial.letter", "C", r"(?<![\w.^_{])(\d+) ?C ?(\d+)(?!\w| ?\)? ?_)", r"\\binom{\1}{\2}"),
    ("dots.usual", "", r"\.{3}|\\(?:[cl]?dots|dots[bcmio])(?![A-Za-z])", r"\\ldots "),
    ("dots.repeating", r"\ldots",
        r"\.(\d{0,20}?)(?:(\d{1,3}?)\2{2,}|(\d{2,6})\3) *\\ldots",
        r".\1\\overline{\2\3}"),
    ("units.angstrom", "AA", r"\\(?:AA(?![A-Za-z])|text ?\{ ?\\AA ?\})", r"\\text{å}"),
    ("units.micro", r"\mu", r"\\mu ?\\(?:text|mathrm|rm) ?\{ ?(?=[msglLFAVW] ?\})", r"\\text{u"),
    ("vectors.bold-hat", r"\hat", r"\\mathbf ?\{ ?(\\hat ?\{?\\?[ijk](?:math)?\}?) ?\}", r"\1"),
    ("vectors.basis", "\\",
        r"\\(?:(?:wide)?hat|vec|mathbf|overrightarrow|bar) ?\{? ?(?:\\mathbf ?)?"
        r"\{?\\?([ijk])(?:math)?(?![A-Za-z]) ?\}{0,2}",
        r" \1 "),
    ("rows.quad", "quad", r"\\q?quad(?= *[A-Za-z]\w* *=)", ","),
    ("rows.ampersand", "&", r"& ?(?==)", ""),
    ("degrees.letter", "^", r"(?<=\d) ?\^ ?(?:\{ ?(?:o|\\text ?\{o\}) ?\}|o(?![a-z]))", r"^\\circ "),
    ("vectors.nabla", r"\nabla", r"\\nabla ?\\(cdot|times)(?![a-z])", r"\\nabla_{\1} "),
    ("vectors.cross", r"\times", rf"{_VECTOR} ?\\times ?{_VECTOR}", r"f_{\\times}(\1,\2)"),
    ("functions.composition", r"\circ", r"\b([f-hF-H]) ?\\circ ?([f-hF-H])\b(?! ?\) ?\()", r"\1(\2)"),
    ("sets.cross", r"\times", r"\A([A-Za-z]) ?\\times ?([A-Za-z])\Z", r"f_{\\times}(\1,\2)"),
    ("factorial.equal", "!=", r"(?<=\d)!=(?!=)", "! ="),
    ("ordinals.raised", r"\text", r"(?<=\d) ?\^ ?\{ ?\\text ?\{ ?(st|nd|rd|th) ?\} ?\}", r"\1"),
    ("sets.set", r"\set", r"\\set ?\{([^{}]*)\}", r"\\{\1\\}"),
    ("ratios.mathbin", r"\mathbin", r"\\mathbin ?\{ ?: ?\}", ":"),
    ("signs.plus-minus", "+/-", r"\+/-", r"\\pm "),
    ("brackets.paren", "paren", r"\\([lr])paren(?![a-z])", lambda side: "()"[side[1] == "r"]),
    ("functions.other-countries", "\\",
        rf"\\(?:operatorname|mathrm|mathop|rm|text)\*? ?\{{ ?({'|'.join(_OTHER_NAMES)}) ?\}}(?= ?[\\(^{{A-Za-z\d])|"
        rf"\\({'|'.join(_OTHER_NAMES)})(?![A-Za-z])",
        lambda name: rf"\{_OTHER_NAMES[name[1] or name[2]]} "),
    ("geometry.named", "ngle",
        r"\A\s*(?:\\text ?\{ ?)?(?:the )?(triangle|angle)[ ~]*\}? *([A-Z]{1,4}) ?\}?\s*\Z",
        r"\\\1 \2"),
    ("vectors.angled", "<", r"\A\s*<([^<>=]*,[^<>=]*)>\s*\Z", r"\\langle \1\\rangle "),
    ("marks.qed", "\\", r"\\(?:square|Box|qed|qedsymbol)\s*\Z", ""),
    ("words.nexists", r"\nexists", r"\\nexists(?![a-z])", r"\\text{does not exist}"),
    ("roots.plain-tex", r"\root", r"\\root ?(\d) ?\\of ?(\d|\{[^{}]*\})", r"\\sqrt[\1]{\2}"),
    ("fractions.slanted", "_",
        r"(?:\{ ?\} ?)?\^ ?\{?(\d+)\}? ?(?:\\! ?)*/ ?(?:\\! ?)*_ ?\{?(\d+)\}?",
        r"\\frac{\1}{\2}"),
    ("marks.lone-exponent", "$^", r"\$(\^\{?\d\}?)\$", r"\1"),
    ("marks.quotes", "``", r"\A\s*``(.+)''\s*\Z", r"\\text{\1}"),
    ("base.overlined", r"\overline", r"\\overline ?\{ ?(\d\w*) ?\}(?= ?_)", r"\1"),
    ("letters.variants", r"\var", r"\\var(?=(?:phi|epsilon|theta)(?![a-z]))", r"\\"),
    ("arrows.right", "rightarrow", r"\\(?:long)?rightarrow(?![A-Za-z])", r"\\to "),
    ("letters.top", r"\top", r"\\top(?![a-z])", "T"),
    ("functions.composed-call", r"\circ", r"\( ?(\w) ?\\circ ?(\w) ?\) ?\(([^()]*)\)", r"\1(\2(\3))"),
    ("derivatives.slash", "/", r"(?<![A-Za-z\\{])d([a-z]) ?/ ?d([a-z])(?![A-Za-z])", r"\\frac{d\1}{d\2} "),
    ("letters.dotless", "math", r"\\([ij])math(?![A-Za-z])", r"\1 "),
    ("letters.probability", "Pr", r"\\c?Pr(?![A-Za-z])", "P"),
    ("letters.blackboard", r"\math", r"\\math(?:bb|bf) ?(?:\{ ?([EP]) ?\}|([EP]))", r"\1\2"),
    ("geometry.measure", r"\angle", r"(?<![A-Za-z])m ?(?=\\angle)", ""),
    ("units.feet-and-inches", "'", r"\A\s*(\d+) ?' ?(\d[\d.]*) ?(?:''|\")\s*\Z", r"\1\\text{ ft }\2\\text{ in}"),
    ("units.inches", '"', r"(?<=\d)\"(?!\w)", r"\\text{ in}"),
    ("groups.underscore", "_",
        r"(?<![\w.])\d{1,3}(?:\\?_\d{3})+(?!\w)",
        lambda groups: re.sub(r"\\?_", "", groups[0])),
    ("marks.blank", "", r"\s", " "),
    ("money.dollar", r"\$", r"\\\$", r"\\dollar "),
    ("marks.delimiter", "", r"(?<!\\)\\[()\[\]]|\$", " "),
    ("groups.indian", "",
        rf"(?<![\d.,])\d\d?(?:{_MARK}\d\d)+{_MARK}\d{{3}}(?!\d)|(?<=\d\.)\d{{3}}(?:{_MARK}\d{{3}})*{_MARK}\d{{1,3}}(?!\d)",
        lambda groups: re.sub(_MARK, "", groups[0])),
    ("groups.thousands", "", rf"(?<=\d){_MARK}(?=\d{{3}}(?!\d))", ""),
    ("groups.decimal-mark", "{", r"(?<=\d)\{[.,]\}(?=\d)", "."),
    ("words.square", ".", r"\b([Ss]q|cu)\.(?= ?(?:[cmdk]?m|in|ft|yd|mi|feet|inch|unit)\b)", r"\1 "),
    ("words.abbreviated", ".", r"(?<=[A-Za-z]{2})\.(?= ?\d)", ""),
    ("words.only", "only", r"(?<=[\d}]) ?\\text ?\{ ?only ?\}", ""),
    ("functions.arrow", r"\mapsto",
        r"\A([A-Za-z]) ?(?::|\\colon(?![a-z])) ?([a-z]) ?\\mapsto(?![a-z])",
        r"\1(\2) ="),
    ("brackets.in-text", r"\text", r"(\\text ?\{ ?)\(([^(){}]*\})", r" (\1\2"),
    ("functions.operator", r"\operatorname", r"\\operatorname\*? ?\{ ?([A-Za-z]+) ?\}", _operator_name),
    ("sets.blackboard", r"\mathbb", r"\\mathbb ?(?:\{ ?([A-Z]) ?\}|([A-Z]))", r"\\\1\2\1\2 "),
    ("sets.bold", r"\mathbf", r"\\mathbf ?\{ ?([NQRZ]) ?\}", r"\\\1\1 "),
    ("sets.reals", "\\", r"\\(?:R|reals|Reals)(?![A-Za-z])", r"\\RR "),
    ("degrees.braced", r"\circ", r"\^\s*\{\s*\\circ\s*\}", r"^\\circ "),
    ("degrees.scale", r"\circ", r"(?<=\\circ) *([CFK])(?![A-Za-z_])", r" \\text{\1}"),
    ("geometry.segment", "=", r"(?:\\overline ?\{ ?([A-Z] ?[A-Z]) ?\}|\| ?([A-Z] ?[A-Z]) ?\|)(?= ?=)", r"\1\2"),
    ("vectors.name", "=",
        r"\\(?:vec|overrightarrow) ?(?:\{ ?([a-z](?:_\w)?) ?\}|([a-z]))(?= ?(?:_ ?\{?\w\}?)? ?=)",
        r"\1\2"),
    ("relations.not-equal", r"\not", r"\\not\s*=", r"\\ne "),
    ("marks.scripts-in-text", r"\textsu",
        r"\\textsu(per|b)script ?(?=\{)",
        lambda found: "^" if found[1] == "per" else "_"),
    ("relations.denied", r"\n",
        r"\\(?:not ?(>|<|\\[lg]eq?(?![a-z])|\\geqslant|\\leqslant)|(ngtr|nless|nleq|ngeq)(?![a-z]))",
        lambda found: next(sign for names, sign in _OPPOSITE.items() if (found[1] or found[2]) in names.split())),
    ("binomial.choose", r"\choose",
        r"(?<![\w}{])(?<!\{ )(\d+|[A-Za-z]) ?\\choose ?(\d+|[A-Za-z](?![A-Za-z])|\{[^{}]*\})",
        r"\\binom{\1}{\2}"),
    ("points.bar", "(",
        rf"\A(\s*(?:[A-Z] ?=? ?)?)"
        rf"\( ?({_COORDINATE}){_BLANKS}(?:\\mid(?![a-z])|\|){_BLANKS}({_COORDINATE}) ?\)(?=\s*\Z)",
        r"\1(\2, \3)"),
    ("relations.not-in", r"\not", r"\\not\s*\\in(?![a-z])", r"\\notin "),
), re.S)  # fmt: skip
