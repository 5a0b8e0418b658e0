r"""Commands of the packages siunitx, units and mhchem: numbers, angles and units as LaTeX that has no packages.

\SI{5}{\metre\per\second}, \qty{5}{m/s}, \unit[5]{m/s} and \pu{5 m/s} are 5\text{ m/s}.
"""

import re

_COMMAND = re.compile(
    r"\\(SI|qty|num|ang|si|unit|unitfrac|pu|numlist|SIlist|qtylist)(?![A-Za-z])\s*(?:\[([^\][]*)\])?\s*(?=\{)"
)
_MOST = 60  # commands in one text
_PREFIXES = dict(
    zip(
        ("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "mega", "giga", "tera"),
        ("p", "n", "u", "m", "c", "d", "da", "h", "k", "M", "G", "T"),
        strict=True,
    )
)
_SYMBOLS = re.split(
    r"\s+",
    r"""
    metre m meter m gram g second s minute min hour h day d ampere A kelvin K mole mol candela cd hertz Hz newton N
    pascal Pa joule J watt W coulomb C volt V farad F ohm ohm siemens S weber Wb tesla T henry H lumen lm lux lx
    becquerel Bq gray Gy sievert Sv litre L liter L tonne t hectare ha electronvolt eV bar bar dalton Da
    degree ^\circ degreeCelsius ^\circ\text{C} celsius ^\circ\text{C} percent \% arcminute ' arcsecond '' radian rad
    astronomicalunit au bit bit byte byte""".strip(),
)
_UNITS = dict(zip(_SYMBOLS[::2], _SYMBOLS[1::2], strict=True))
_PIECE = re.compile(
    r"\\([A-Za-z]+|%)(?:\s*\{([^{}]*)\})?|\^\s*\{?\s*(-?\d)\s*\}?|([A-Za-zµμ°%]+)|(/)|([.~\s·{}()]|\\[,;:!])+"
)


def _group(text: str, at: int) -> int:
    """The end of a group in braces that begins at a place; -1 if it does not close."""
    depth = 0
    for mark in re.compile(r"\\.|[{}]", re.S).finditer(text, at):
        depth += (mark[0] == "{") - (mark[0] == "}")
        if depth == 0:
            return mark.end()
    return -1


def without_packages(text: str) -> str:
    r"""LaTeX in which commands of packages for units are numbers and \text{…}."""
    for _ in range(_MOST):
        command = _COMMAND.search(text)
        if command is None:
            return text
        groups, end = list[str](), command.end()
        for _ in range(2 if command[1] in ("SI", "qty", "unitfrac", "SIlist", "qtylist") else 1):
            start = re.compile(r"\s*(?=\{)").match(text, end)
            close = _group(text, start.end()) if start else -1
            if start is None or close < 0:
                break
            groups.append(text[start.end() + 1 : close - 1].strip())
            end = close
        if not groups:
            return text
        text = f"{text[: command.start()]} {_written(command[1], command[2] or '', groups)} {text[end:]}"
    return text


def _written(command: str, option: str, groups: list[str]) -> str:
    match command, groups:
        case "num" | "qty", [value]:  # \qty{…} of one group is a bracket of the package physics
            return _number(value) if command == "num" else f"({value})"
        case "numlist", [values]:
            return ", ".join(map(_number, values.split(";")))
        case "ang", [angle]:
            marks = (r"^\circ ", "'", "''")
            return " ".join(
                _number(part) + mark for part, mark in zip(angle.split(";"), marks, strict=False) if part.strip()
            )
        case "SI" | "qty", [value, unit]:
            return f"{_number(value)} {_unit(unit)}"
        case "SIlist" | "qtylist", [values, unit]:
            return ", ".join(f"{_number(value)} {_unit(unit)}" for value in values.split(";"))
        case "si", [unit]:
            return _unit(unit)
        case "unit", [unit]:
            return f"{_number(option)} {_unit(unit)}"
        case "unitfrac", [top, bottom]:
            return f"{_number(option)} \\text{{{top}/{bottom}}}"
        case "pu", [value]:
            number = re.match(r"[-+]?[\d.,]*(?:e[-+]?\d+)?", value)
            return f"{number[0] if number else ''} {_unit(value[number.end() if number else 0 :].replace('//', '/'))}"
    return " ".join(groups)


def _number(value: str) -> str:
    return re.sub(r"(?<=\d)[~\s]+(?=\d{3}(?!\d))|(?<=[.\d]\d)[~\s]+(?=\d)", "", value)


def _unit(spec: str) -> str:
    r"""The unit of \kilo\gram\per\cubic\metre, or of kg/m^3."""
    named, sign, power, prefix, bar = list[str](), 1, 1, "", 1
    for piece in _PIECE.finditer(spec):
        macro, argument, exponent, letters, slash = piece[1], piece[2], piece[3], piece[4], piece[5]
        if macro in _PREFIXES:
            prefix = _PREFIXES[macro]
            continue
        if macro == "per":
            sign = -1
        elif macro in ("square", "cubic"):
            power = 2 if macro == "square" else 3
        elif macro in ("squared", "cubed", "tothe", "raiseto") or exponent:
            value = {"squared": "2", "cubed": "3"}.get(macro or "", exponent or argument or "1")
            if macro == "raiseto":
                power = int(value) if value.isdecimal() else 1
            elif named and "^" not in named[-1]:
                named[-1] += f"^{value}"
            elif named:  # a negative power, or \squared after \per
                base, _, before = named[-1].rpartition("^")
                named[-1] = f"{base}^{int(before) * int(value)}" if value.lstrip("-").isdecimal() else named[-1]
        elif slash:
            bar = -1
        elif macro or letters:
            symbol = letters or _symbol(macro)
            if letters in ("%", "°"):
                symbol = r"\%" if letters == "%" else r"^\circ "
            whole = power * sign * bar
            named.append(prefix + symbol + (f"^{whole}" if whole != 1 else ""))
            sign, power, prefix = 1, 1, ""
    if len(named) == 1 and named[0][0] in "\\^'":
        return named[0]
    return rf"\text{{ {' '.join(named)}}}" if named else ""


def _symbol(macro: str) -> str:
    """The symbol of a unit's command: \\metre and \\kilogram, but also \\kg."""
    if macro in _UNITS:
        return _UNITS[macro]
    for prefix, letter in _PREFIXES.items():
        if macro.startswith(prefix) and macro.removeprefix(prefix) in _UNITS:
            return letter + _UNITS[macro.removeprefix(prefix)]
    return macro
