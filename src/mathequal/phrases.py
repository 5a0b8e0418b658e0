r"""English phrases and notation around mathematics: what a whole answer in words is, what only names a value, and
which operator a phrase stands for. Each table is in the order of its replacement."""

import re
from functools import partial

from mathequal.languages import fold
from mathequal.rulebook import table
from mathequal.text import word_list
from mathequal.tokens import FUNCTIONS
from mathequal.units import CODES, SPELLED_UNITS, adds_a_name, introduces, read_unit

_NUMBERS = {"real": "R", "integer": "Z", "rational": "Q", "complex": "C", "natural": "N"}
_SIGNS = {"positive": ">0", "negative": "<0", "nonnegative": ">=0", "nonpositive": "<=0"}
_QUADRANTS = dict(first="I", second="II", third="III", fourth="IV") | {
    "1st": "I", "2nd": "II", "3rd": "III", "4th": "IV", "1": "I", "2": "II", "3": "III", "4": "IV",
    "one": "I", "two": "II", "three": "III", "four": "IV", "i": "I", "ii": "II", "iii": "III", "iv": "IV",
}  # fmt: skip
_PLACES = "|".join(sorted(_QUADRANTS, key=len, reverse=True))


def _set_of_numbers(words: re.Match[str]) -> str:
    part = _SIGNS[words[1].replace("-", "")] if words[1] else ""
    return rf"\mathbb{{{_NUMBERS[words[2]]}}}" + f"_{{{part}}}" * bool(part)


def _quadrant(words: re.Match[str]) -> str:
    return f"quadrant {_QUADRANTS[words[1] or words[2] or words[3]]}"


WHOLE = table((
    ("whole.infinity", "infinity", r"(?:(?:plus|positive) )?infinity", r"\\infty"),
    ("whole.minus-infinity", "infinity", r"(?:minus|negative) infinity", r"-\\infty"),
    ("whole.no-solution", "",
        "(?:there (?:is|are) |the (?:equation|system|inequality) has )?(?:(?:no|zero) (?:real |such )?"
        "(?:solutions?|roots?|values?(?: of x)?)|none|(?:the )?empty(?: set)?)(?: exists?)?", r"\\emptyset"),
    ("whole.no-solution-abroad", "",
        r"(?:es gibt |il n'y a |no hay |non ci sono |n[aã]o h[aá] )?(?:keine?(?: reellen?)? l[oö]sung(?:en)?|"
        r"(?:aucune|pas de|sans) solutions?|"
        r"(?:sin|ninguna|no hay) soluci(?:[oó]n|ones)|nessuna soluzione|(?:sem|nenhuma) solu[cç][aã]o|"
        r"brak rozwi[aą]za[nń]|geen oplossing(?:en)?|ingen l[oö]sning(?:ar)?|leere menge|ensemble vide|"
        r"conjunto vac[ií]o)", r"\\emptyset"),
    ("whole.morning", "in the morning", r"(\d\d?:\d\d) in the morning", r"\1 a.m."),
    ("whole.evening", ":", r"(\d\d?:\d\d) (?:in the (?:afternoon|evening)|at night)", r"\1 p.m."),
    ("whole.at-time", ":", r"[a-z] ?= ?(\d\d?:\d\d.*)|at (\d\d?:\d\d.*)", r"\1\2"),
    ("whole.exclamation", "!", "([a-z]{2,})!", r"\1"),
    ("whole.undefined", "",
        "(?:(?:(?:the )?limit|it) )?(?:(?:is )?(?:un|not )defined|(?:is )?indeterminate|dne|does ?n[o']t exist|nan)",
        "undefined"),
    ("whole.noon", "",
        "(?:12(?::00)? )?(?:noon|midday)(?: [(]?12(?::00)? ?p[.]?m[.]?[)]?)?", "12 p.m."),
    ("whole.midnight", "midnight", "(?:12(?::00)? )?midnight", "12 a.m."),
    ("whole.clock", ":", r"(\d\d?:\d\d) ?(?:uhr|h|hrs|hours|o'clock)", r"\1"),
    ("whole.clock-abroad", "", r"(?:um )?([01]?\d|2[0-4])\.([0-5]\d) ?uhr", r"\1:\2"),
    ("whole.full-hour", " ", r"(\d\d?) (?:o'clock|uhr)", r"\1:00"),
    ("whole.quadrant", "q",
        rf"(?:in )?(?:the )?(?:({_PLACES})[ -]quadrant|quadrant ({_PLACES})|q ?({_PLACES}))", _quadrant),
    ("whole.on-date", "on ", r"on ((?!on ).* \d.*)", r"\1"),
    ("whole.verdict-with-reason", " ",
        r"(yes|no|true|false)[,.:;]? (?:since|because|as) (?!.*(?:yes|no|not|true|false)\b).*", r"\1"),
    ("whole.yes-with-statement", "yes",
        r"(yes)[,.:;]? (?:it|they|this|that|there|he|she|we|you|one|the [a-z]+|[a-z]) "
        r"(?:is|are|does|do|can|has|have|will|was|were|[a-z]{3,}s) "
        r"(?!.*\b(?:not|no|never|but|only|unless|if|except|false|without|none|neither|or)\b|.*n't)[a-z ]{1,60}", r"\1"),
    ("whole.no-with-statement", "no",
        r"(no)[,.:;]? (?:it|they|this|that|there|he|she|we|you|one|the [a-z]+|[a-z]) "
        r"(?:is|are|does|do|can|has|have|will|was|were)(?: not|n't) "
        r"(?!.*\b(?:not|no|never|but|only|unless|if|except|yes|without|none|neither|or)\b|.*n't)[a-z ]{1,60}", r"\1"),
    ("whole.yes-it-is", "yes", "(yes),? (?:it|they|this|there) (?:is|are|does|do|can)", r"\1"),
    ("whole.no-it-is-not", "no", "(no),? (?:it|they|this|there) (?:is|are|does|do|can)(?: not|n't)", r"\1"),
    ("whole.set-of-numbers", "",
        r"(?:the set of )?(?:all |any |the )?(?:(positive|negative|non-?negative|non-?positive) )?"
        rf"({'|'.join(_NUMBERS)})(?:s| numbers)", _set_of_numbers),
))  # fmt: skip
"""Whole answers in words, and how else they are written."""


def _operator(latex: str, phrase: re.Match[str]) -> str:
    r"""The operator that a phrase names; it closes and reopens the \text{…} around it."""
    before = phrase.string[: phrase.start()]
    return f"\x02 {latex} \x01" if before.count("\x01") > before.count("\x02") else f" {latex} "


PHRASES = table((
    (id, needs, rf"(?<!\\)\b(?:{phrase})(?!\w)", partial(_operator, latex)) for id, needs, phrase, latex in (
    ("phrase.at-least", "", r"(?:is )?(?:(?:greater|more) than or equal to|at least|(?:no|not) less than)", r"\ge"),
    ("phrase.at-most", "", r"(?:is )?(?:less than or equal to|at most|(?:no|not) (?:more|greater) than)", r"\le"),
    ("phrase.more-than", "than", r"(?:is )?(?:greater|more) than", ">"),
    ("phrase.less-than", "less than", r"(?:is )?less than", "<"),
    ("phrase.not-equal", "equal", "(?:is )?not equal to", r"\ne"),
    ("phrase.equal", "equal", r"(?:is )?equal to|equals", "="),
    ("phrase.plus-or-minus", "plus or minus", "plus or minus", r"\pm"),
    ("phrase.per-cent", "per cent", "per cent", r"\%"),
    ("phrase.out-of", "", r"(?:out of|(?:(?<=\d )|(?<=\d \x01))in)(?=[ \x02]*\d)", "/"),
    ("phrase.multiples-of", "of", r"(?:all )?multiples of(?=[ \x02]*(\d+))", r"\ZZ\cdot"),
    ("phrase.approximately", "approximately", r"approximately(?=[ \x02]*[\d\\])", r"\approx"),
    ("phrase.but", "but",
        r"(?:(?<=reals )|(?<=numbers ))but(?: not)?(?=[ \x02]*(?:x ?= ?)?[-\d\\])", r"\setminus"),
    ("phrase.all-with-relation", "al",
        r"(?:all(?: real)?(?: numbers| values)?(?: of)?|real|all[ \x02]*[a-z][ \x01]*such that)"
        r"(?=[ \x02]*[a-z0-9-]+ ?(?:[<>]|\\[lgn]))|all(?: real)?(?=[ \x02]*[a-z][ \x01\x02]+(?:[<>]|\\[lgn]))", ""),
    ("phrase.usd", "usd", r"USD(?=[ \x02]*\d)", r"\dollar"),
    ("phrase.eur", "eur", r"EUR(?=[ \x02]*\d)", r"\euro"),
    ("phrase.gbp", "gbp", r"GBP(?=[ \x02]*\d)", r"\gbp"),
    ("phrase.rupees", "", r"(?:Rs\.|Rs|INR)(?=[ \x02]*\d)", r"\rupee"),
    ("phrase.us-dollar", "us", r"US(?=[ \x02]*(?:dollars?|\\dollar))", ""),
    ("phrase.minus", "", r"(?:minus|negative)(?=[ \x02]*[\d\\])", "-"),
    ("phrase.reals", "real",
        r"(?:the set of )?(?:(?:all|any|the) )?real(?: numbers?| values?|[ \x02]*x(?![a-z]))|all reals", r"\RR"),
    ("phrase.except", "e", "except(?: for)?|other than|excluding", r"\setminus"),
)), re.I)  # fmt: skip
"""Phrases for operators; `needs` is what their text has in lower case."""
LEAD = re.compile(
    r"""[\s*]*\x01?\s*(?:(?:(?:so|thus|hence|therefore|finally),?\ )?(?:
    (?:the\ )?(?:(?:final|correct|right)\ )?(?:answer|option|choice)[\s\x02]*(?:is|:)
    |(?:(?:it\ is|there\ are|is|are)\ )?(?:exactly|precisely|(?:a\ )?total\ of|in\ total|just|only|is|are)
     (?=[\s\x02]*(?:[-+]?[\d.]|\\(?:frac|sqrt|dollar|pi)(?![a-z])|\())
    |(?:respuesta|respuesta\ final|antwort|r[eé]ponse|risposta|resposta|ответ|odpowied[zź]|答え|답)\ ?[:：]
    |(?:la\ respuesta\ es|die\ antwort\ (?:ist|lautet)|la\ r[eé]ponse\ est|la\ risposta\ [eè]|a\ resposta\ [eé])
     (?![a-z]):?
    |(?:the\ )?(?:point|vertex|center|centre|midpoint|focus)(?=[\s\x02]*\()|(?:\\ell|L)\s*:(?=\s*[xy]\s*=)
    |(?:(?:so|thus|hence|therefore),?\ )?there\ (?:are|is)(?:\ exactly)?(?=[\s\x02]*\d)
    |(?:so|thus|hence|therefore),?(?=\s*\x02)
    |(?:so,?\ )?we\ (?:get|have|obtain|find)(?!\w)|(?:the\ )?year(?=\W*\d{4}))
    |\[(?:ans|answer|sol|solution)\]
    |(?:ans|answer|sol|solution)(?:\ ?[.:]{1,2}(?=\ )|(?=\ [-+]?(?:[\d.(]|\\(?:frac|sqrt|dollar))))
    |答案?\s*[是为:]|答案|选(?=\s*[A-H])|共有?(?=\s*\d)
    |\\(?:Rightarrow|implies|to)(?![A-Za-z])|(?P<said>[A-Za-z](?:[A-Za-z'\ ]|\x02\s*[A-Za-z]\s*\x01)*?
     (?:\b(?:are|was|were|has|have|had|is|equal\ to|point|[A-Za-z]{3,}s)|(?P<colon>:)))\s*
     (?=[\x02\s]*(?:[-+\d$\\(\[.]|[a-z]\ ?[=^]))
    |(?P<event>\\?(?:(?-i:Pr?|E|Var|Cov)|n(?=\s*\([^()]*\\c[au]p))\s*[(\[](?!\s*(?-i:[a-z0-9])\s*[)\]])[^()]{0,80}[)\]]
     |\\\#\s*[A-Z]|\\(?:deg|dim)\s*\(?[A-Za-z]\)?
     |\\(?:min|max)\s*_\s*\{[^{}]*\}\s*[A-Za-z](?:\([^()]*\))?)\s*(?:=|(?=\\approx))(?!.*,\s*\\?[A-Za-z])
    )[\s:*\x02]*""",
    re.I | re.X,
)
"""What names a value before it: "the answer is", "Maria has", "Domain:", P(A | B) =."""
SAY_NOTHING = {
    *word_list("""the answer value values result final this that these those are was were has have had equal
    point she they there you john""")
}
HEDGE = re.compile(
    r"^\s*\x01?\s*(?:about|around|roughly|approx\.|(?-i:ca\.?)|circa|environ|aproximadamente|alrededor de|cerca de|"
    r"etwa|ungef(?:a|ä)hr|rund|около|примерно|приблизительно|约为?|大约|約|およそ)(?![A-Za-z])[\s\x02]*"
    r"(?=[-+]?(?:[\d.]|\\(?:dollar|euro|gbp|frac)))",
    re.I,
)
ROUNDED = re.compile(
    r"\s*,?\s*\(?\s*\x01\s*\(?\s*(?:(?:when )?rounded(?: (?:off|up|down))?(?: to [\w ]+)?|"
    r"to (?:the nearest|\d+) [a-z ]+|approximately|approx\.?)\s*\)?\s*\x02\s*\)?$"
)
"""What says that a value is rounded: before it, and after it."""
_LABEL = re.compile(
    r"[ ,;.\x01\x02]*(?<![^ ,;.\x01\x02])(?:and[ \x02]+)?(?:\(?(?P<part>[a-h])\)[:.]?(?=[ \x02])|"
    r"(?P<thing>[A-Za-z]{3,}) ?:(?=[ \x02]*[-\d\\(\[]))[ \x02]*"
)
TAIL = re.compile(
    r"""(?<=[\d}])\s*\x01\s*(?:exactly|precisely|in\ total|altogether)\s*\x02$
    |(?<=\d)\s*\x01\s*(?:\w+\ ){0,2}(?:values?|solutions?|choices|integers?|pairs?)\ (?:of|for)\s*\x02
     \s*\(?[a-z](?:\s*,\s*[a-z])*\)?$
    |(?<=\d)\s*\x01\s*(?:\w+\ )?ways\ to(?:\ [a-z]+){1,5}\s*\x02$
    |(?:(?<=%)|(?<=\d))\s*\x01\s*(?:of\ (?:the|all)\ |each)[^\x02\d]*\x02$
    |,?\s*\(?\s*\x01\s*\(?,?\s*(?:as\ (?:required|desired|needed)|(?:because|since)\ [a-z\ ]+|
     (?:in\ interval\ notation|(?:verified|checked|confirmed|rejecting|discarding|using)(?:\ [a-z]+)*))\)?\s*\x02\s*\)?$
    |,?\s*\x01?\s*for\ (?:all|any)\ ?(?:real\ ?)?(?:numbers?\ ?|values\ of\ ?)?\x02?\s*[a-z]\x02?$
    |(?:,\s*(?:\x01\s*where)?|\x01\s*(?:where|for)|\()\s*\x02?\s*[a-z]\s*
     (?:\\in\s*\\RR\ *\)?|\x01\s*is\ (?:any|a)\ real\ number\s*\x02)$""",
    re.X,
)
"""What names it after it: 5 values of x, 5 % of the students, for all real x."""
ROWS_OF_WORDS = re.compile(r"(?<=\d)\s+((?:[A-Za-z]{2,}\s+)+[A-Za-z]{3,})$")
THOUSANDS = re.compile(
    r"([-+]?\s*(?:\\(?:dollar|euro|gbp|rupee)\s*)?[-+]?\s*)(\d{1,3}(?:,\d{3})+|(?P<indian>\d{1,2}(?:,\d\d)+,\d{3}))(?![\d,])"
    r"((?:\.\d+)?\s*(?:\\?%|\x01[^\x02]*\x02(?:\s*\^\s*\{?\d\}?)?|\\dollar|\\euro|\^\s*\{?\s*\\circ\s*\}?|"
    r"[A-Za-z ]{2,25})?)"
)
DECIMAL_COMMA = re.compile(
    r"(?:[A-Za-z]\w{0,3} ?= ?)?[-+]?\s*"
    r"(?P<before>(?:\\(?:dollar|euro|gbp|yen|rupee)|(?:[A-Z]{3}|R|[Kk]r|Fr|z[lł])\.? )\s*)?"
    r"[-+]?\s*\d{1,3}(?P<groups>(?:[. ]\d{3})+|\d*),(?!\d{3}(?!\d))\d+\s*"
    r"(?P<after>(?:\\cdot|\\times|[·×*]|x(?= ?10))\s*10\s*\^.*|"
    r"\\?%|\\(?:euro|dollar|gbp|cent)|\^\s*\{?\s*\\circ.*|\x01?(?P<words>[^\x02\d]+)\x02?.*)?"
)
_DOLLARS = dict(
    C="CAD", CA="CAD", CDN="CAD", A="AUD", AU="AUD", R="BRL", HK="HKD", NT="TWD", S="SGD", NZ="NZD", MX="MXN"
)
LONG_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
KNOWN_WORDS = (
    FUNCTIONS
    | SPELLED_UNITS
    | {*word_list("and or per begin end pmatrix bmatrix matrix array vmatrix cases infty if otherwise for")}
)
INTEGERS = re.compile(
    r",?\s*\x01?\s*\(?(?:where|for (?:all|any|every|some)|any|with)?\s*(?:integers?)?\s*\x02?\s*([a-z])\s*\x01\s*"
    r"(?:is|be|are)?\s*(?:an?|any)?\s*(?:arbitrary )?integers?\)?\s*\x02\s*$|"
    r",?\s*\x01\s*(?:(?:for |where )?(?:any|all|every|some)|for) integers?\s*\x02\s*([a-z])\s*$|"
    r"\(\s*([a-z])\s*\\in\s*\\ZZ\s*\)$"
)


def _unbracketed(found: re.Match[str]) -> str:
    """The unit of 5 (cm) and 5 [N]."""
    unit = read_unit(found[2].split()) and (len(found[2]) > 1 or found[1] == "[" or "\x01" in found[0])
    return f" \x01{found[2]}\x02" if unit else found[0]


_COINS = {*word_list("""kc kcs korun koruna koruny ft forint forintu forinty kr krone kroner kronor kronur lei leu lv
    lev leva kn kuna kune din dinar dinara tl lira gel lari лв лева лев грн гривень гривны гривен гривна ден дин динара
    тг тенге сум сом""")}  # fmt: skip
"""Currencies, as `fold` leaves them, that are no units to the judge."""


def is_decimal_comma(found: re.Match[str]) -> bool:
    """Whether a comma parts a number's decimals, as in €13,50, 3,5 km and 1.234,50: lists have no unit, no groups."""
    words = (found["words"] or "").split()
    known = not words or read_unit(words) or adds_a_name(words, None) or fold(words[0]).strip(".") in _COINS
    unit = found["before"] or (found["after"] and known)
    return bool(unit) or found["groups"].startswith((".", " "))


def ungrouped(found: re.Match[str]) -> str:
    """Numbers without the marks between their thousands."""
    mark = next((x for x in " ." if x in found[0]), ",") if re.fullmatch(r"[-+\d .]+", found[0]) else ","
    return re.sub(rf"(?<=\d)[{mark}](?=\d\d(?:,\d\d)*,\d{{3}}(?!\d)|\d{{3}}(?!\d))", "", found[0])


def _terms(found: re.Match[str]) -> str:
    """All numbers of 1, 2, …, 6; the text itself unless they are in arithmetic progression."""
    first = [int(number) for number in found[1].split(",") if number.strip()]
    step = first[1] - first[0] if len(first) > 1 else 1
    every = range(first[0], int(found[2]) + (step > 0) - (step < 0), step) if step else range(0)
    whole = len(first) < len(every) <= 1000 and [*every][: len(first)] == first and every[-1] == int(found[2])
    return ", ".join(map(str, every)) if whole else found[0]


AS_FORMULA = table((
    ("formula.empty-text", "\x01", r"\x01\s*\x02", " "),
    ("formula.where-not", "(", r"\(\s*\x01(?:where|for|if)\x02\s*(?=[a-z] ?\\ne)", "("),
    ("formula.both", "th", r"^\x01?\s*(?:[Bb]oth(?=.*\band\b)|[Ee]ither(?=.*\bor\b))\s*\x02?\s*", ""),
    ("formula.point", ":", r"^([A-Z]) ?: ?(\([^()]*,[^()]*\))$", r"\1 = \2"),
    ("formula.bare-sets", r"\in", r"\\in ?([ZRQ])(?![\w'^({]| ?_)", r"\\in \\\1\1 "),
    ("formula.integers-listed", r"\ldots",
        r"([a-z]) ?= ?(?:0 ?, ?(?:\\pm ?\d ?, ?)+|\\ldots ?, ?(?:-?\d ?, ?)+)\\ldots",
        r"\1 \\in \\ZZ "),
    ("formula.excluded-name", r"\setminus", r"\\setminus( *)[a-z] ?= ?", r"\\setminus\1"),
    ("formula.is", "is", r"((?:^|[,;]|\band\b) ?\x02? ?[A-Za-z] ?)\x01? ?is ?\x02?(?= ?[-\d(\\])", r"\1 = "),
    ("formula.unit-in-brackets", "",
        r"(?<=[\d}])\s*\x01?\s*([(\[])\s*(?:\x01|in )*\s*([A-Za-z/^\d ]{1,25}?)\s*\x02?\s*[)\]]\s*\x02?$",
        _unbracketed),
    ("formula.terms", r"\ldots",
        r"(?<![\w.,/^)}])((?:-?\d{1,9} ?, ?){1,9})\\ldots ?, ?(-?\d{1,9})(?! ?(?:[\w.^/({!]|\\(?!\})))",
        _terms),
    ("formula.condition-in-brackets", "(",
        r"(?<=\S) \( ?([a-z] ?(?:[<>]|\\(?:[lg]eq?|neq?|in)(?![a-z]))[^()]*)\)$",
        r", \1"),
    ("formula.about-in-brackets", "(",
        r"(?<=\S) \( *\x01? ?(?:about|roughly|approx\.?) ?\x02? ?(?=[\d.])",
        r" ( \\approx "),
    ("formula.other-value-in-brackets", "(", r"(?<=\S) \( *((?:\x01?or\b|\\approx|=) ?[^()]*)\)$", r" \1"),
    ("formula.or-approximately", r"\approx", r"(?<=\S) \x01?or ?\x02? *(?=\\approx)", " "),
    ("formula.or-more", "or",
        r"^\x01?\s*(-?[\d.]+)\s*\x01?\s*or \x01?(?:more|greater|larger)[\s\x02]*$",
        r"\\ge \1"),
    ("formula.or-less", "or",
        r"^\x01?\s*(-?[\d.]+)\s*\x01?\s*or \x01?(?:less|fewer|smaller)[\s\x02]*$",
        r"\\le \1"),
    ("formula.ordinal", "",
        r"^(\d+)\s*(?:\^\s*)?\{?\s*\x01?\s*(?:st|nd|rd|th)\s*\x02?\s*\}?$",
        "\\1 \x01places\x02"),
    ("formula.currency-code", "", rf"^\x01?\s*({CODES})\.?\s*\x02?\s*(-?[\d.,]+)$", "\\2 \x01\\1\x02"),
    ("formula.dollars-of-countries", r"\dollar",
        r"^\x01?\s*(C|CA|CDN|A|AU|R|HK|NT|S|NZ|MX)\s*\x02?\s*\\dollar\s*([\d.,]+)$",
        lambda found: f"{found[2]} \x01{_DOLLARS[found[1]]}\x02"),
    ("formula.blanks-with-unit", " ",
        r"^[-+]?(?:\\(?:dollar|euro|gbp|rupee|yen) ?)?\d{1,3}(?: \d{3})+(?:\.\d+)? ?"
        r"(?:\x01[^\x02\d]*\x02|[A-Za-z]{2,}|\\[a-z]+)$|"
        r"^[-+]?\\(?:dollar|euro|gbp|rupee|yen) ?\d{1,3}(?: \d{3})+(?:\.\d+)?$",
        lambda found: re.sub(r"(?<=\d) (?=\d{3})", "", found[0])),
    ("formula.blanks-or-points", "",
        r"^[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?$|^[-+]?\d{1,3}(?:\.\d{3}){2,}$",
        ungrouped),
    ("formula.blanks-of-decimals", " ",
        r"^[-+]?\d+\.\d{3}(?: \d{3})* \d{1,3}$",
        lambda found: found[0].replace(" ", "")),
    ("formula.to", "to", r"(?<=[\d}])\s*(?:\x01\s*to\s*\x02|\sto\s)\s*(?=[\d\\])", " : "),
    ("formula.commas-before-relation", ",",
        r"(?<![\d,.(\[{])\d{1,3}(?:,\d{3})+(?![\d,])(?=\s*(?:=|\\approx|\x01))",
        ungrouped),
    ("formula.commas-in-computation", "",
        r"^(?!.*(?:[(\[]|, |\\\{|,\d{3}(?!\d|,\d{3}| ?(?:[-+*/.]|\\(?:pi|sqrt|cdot)|$)))).*\d ?[-+*/\\].*$",
        ungrouped),
))  # fmt: skip
"""Notations of whole formulas."""

TWO_LETTERS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2}")


def by_label(plain: str) -> str:
    """Answers in parts, (a) 3 (b) 4 or apples: 5, pears: 7, as values with names."""
    before, *rest = _LABEL.split(plain)
    labels, parts = [part or thing for part, thing in zip(rest[::3], rest[1::3], strict=True)], rest[2::3]
    in_order = {*labels} == {*"abcdefgh"[: len(labels)]} or None not in rest[1::3]
    whole = not before and 1 < len(labels) == len({*labels}) and in_order and all(map(str.strip, parts))
    return ", ".join(f"\x01{label}\x02 = {part}" for label, part in zip(labels, parts, strict=True)) if whole else plain


def without_lead(lead: re.Match[str]) -> str:
    """Nothing in place of words that only introduce a value; words that negate, compare or compute stay."""
    words = re.sub("[\x01\x02:]", " ", lead["said"] or "").split()
    of_letter = re.fullmatch("(?!.*value of [a-zA-Z] is$).* [b-zA-Z] .*", " ".join(words))
    whole = len(words) < 8 and len(lead["said"] or "") > 4 and (len(words) > 1 or lead["colon"])
    if words and (of_letter or not whole or not introduces(words)):
        return lead[0]
    return "\x01" * (lead[0].count("\x01") - lead[0].count("\x02"))


INDEX_IS_REAL = re.compile(
    r"[kmnj]\s*\\in\s*\\RR(?![_^])|\breal(?: numbers?| values? of)?[\s\x01\x02]*[kmnj][\s\x02]*$"
)
FOLLOWS = re.compile(r"\\(?:Rightarrow|implies|Longrightarrow|iff|Leftrightarrow|to)(?![A-Za-z])")
