r"""Words before and after a box that make another answer of it, by meaning (long: tables of ten languages): "at least",
"не более", "以上". Each rule lists the phrases that have one meaning, and says what stands for them in the box.

A phrase is a row of words as `fold` leaves them, without capitals and accents. `(a|b)` stands for one of several
words, `[a|b]` for one of them or none, N for a number, W for any word, ^ for the beginning of a clause and $ for the
end. Phrases of Chinese, Japanese and Korean need no blanks around them. What each rule means, with an example, is in
data/rules.tsv.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple, Protocol

from mathequal.languages import fold
from mathequal.text import word_list

NOT = r"\text{not }"
"""Before an answer that is denied, or whose value is another one."""
ABOUT = r"\text{about }"
"""A hedge before an answer."""
NOTHING = "\0"
"""In place of words that look like others, and leave the answer as it is."""
_BOUND = (
    r"\b(?:least|most|min|max|minim\w*|maxim\w*|m[ií]nim\w*|m[aá]xim\w*|small\w*|larg\w*|great(?:est)?|fewest|bounds?|"
    r"lowest|highest|inf|sup|infimum|supremum|best|optimal|shortest|longest|must|kleinst\w*|gr[oö](?:ß|ss)t\w*|menor|"
    r"mayor|maior)\b|最[大小少多低高优]|至[少多]|наим|наиб"
)
r"""Questions that "at least 5" and $S\ge\boxed{5}$ answer by 5: those for an extreme value."""
_CHANGE = (
    r"\b(?:by how (?:much|many)|what (?:number|factor|integer|value)|increas|decreas|reduc|multipl|"
    r"divi[ds]|subtract|add|take|chang|rais|power)"
)
"""Questions about a change, which "increased by 5" answers."""
_WRONG = r"\b(?:not|n't|wrong|false|incorrect|invalid|impossible|extraneous|exclude|reject|fail|cannot)|untrue"
"""Questions for what is wrong."""
_LOSS = (
    r"\b(?:loss|los[et]|debt|ow(?:e|es|ed)\b|deficit|decreas|drop|f[ae]ll|declin|reduc|discount|short|chang|"
    r"how much less|sav[ei]|percent|differen|cheaper)"
)
"""Questions about what is lost, which "a loss of 5" answers."""
_DIFFERENCE = r"\bthan\b|\bdifferen|\bexceed|\bby how|\bcompar|\bmore\b|\bless\b|\bexpress\b|\bin terms of\b"
_ROUNDED = r"\bround|\bnearest|\bwhole|\binteger|\bapprox|\bestimat|\bat least|\bminimum|\bneed"
_TIMES = r"\btimes\b|\bfactor\b|\bfold\b|\bratio\b|\bhow many more\b|\badded\b|\badd\b"
_SHARE = r"\bhow many\b|\bnumber of\b|\bscore|\bout of\b|\bcorrect|\bamong"
_RATE = r"\bratio\b|\brate\b|\bevery\b|\beach\b|\bper\b"
_BELOW = r"\bbelow|\bdeep|\bdepth|\bunder|\bbeneath|\bdebt|\bow(?:e|es|ed)\b|\bloss|\bhow far|\bdegrees colder|\bdrop"
BOUND = re.compile(_BOUND, re.I)


class About(Protocol):
    """What is known of an answer."""

    question: str

    @property
    def kind(self) -> str: ...


class Phrases(NamedTuple):
    """One meaning of words beside a box."""

    id: str
    joined: str
    """What stands for them beside the answer in the box; "" for the words themselves."""
    words: str
    """The phrases, with | or the end of a line between them."""
    unless: str = ""
    """A pattern of questions that such words answer, so that they change nothing."""
    kinds: str = ""
    """The kinds of answers that they change; any, if none is named."""

    def changes(self, around: "About | None") -> bool:
        """Whether such words change an answer."""
        if around is None:
            return True
        if self.kinds and around.kind not in self.kinds.split():
            return False
        return not self.unless or re.search(self.unless, around.question, re.I) is None


BEFORE = [
    Phrases("before.not", NOT, """
        not | never | nor | neither | isn't | aren't | wasn't | weren't | can't | cannot | won't | wouldn't
        shouldn't
        mustn't | couldn't | doesn't | (reject|rejects|rejecting|rejected|discard|discards|discarding|discarded)
        (exclude|excludes|excluding|eliminate|eliminates|eliminating|except|unlike|besides) [for]
        (rule|rules|ruling|ruled) out
        (instead|regardless) of | (rather|other) than | contrary to | as opposed to | different (from|than)
        apart from
        (anything|everything|all|any|nothing|every W|any W|all W) but | nowhere near | far from
        (wrong|incorrect|false) (answer|value|result|option|choice) (is|was|would be)
        (nie jest|nie sa|nie) | inte | niet | (neni|nejsou) | nu (este|sunt) | nem | khong phai [la] | bukan | ikke
        nicht [gleich|die|der|das|ein|eine] | (kein|keine|keinen) | pas [egal a|egale a|le|la|un|une] | non
        (no|tampoco) (es|son|era|sea) [igual a|el|la|un|una] | non (e|sono|era) [uguale a|il|la|un|una]
        nao (e|sao|era) [igual a|o|a|um|uma] | не [является|равно|равен|равна] | ausser | sauf | excepto | tranne
        exceto
        不是 | 不等于 | 不為 | 不为 | 并非 | 不可能是 | 不能是 | 除了 | ない
        """),
    Phrases("before.at-least", r"\ge ", """
        at least | (no|not) (less|fewer|smaller|lower|shorter|younger|under|below) [than] | minimum of
        (greater|more|larger|bigger) than or equal to | at a minimum | mindestens | (co najmniej|przynajmniej)
        en az | minst
        atminstone | minstens | (ten|op zijn) minste | op zijn minst | alespon | nejmene | nejmin | cel putin | legalabb
        it nhat | (setidaknya|sedikitnya|minimal) | paling (sedikit|tidak) | sekurang kurangnya | mindst | vahintaan
        wenigstens | nicht weniger als
        grosser oder gleich | au moins | pas moins de | (superieur|superieure) ou (egal|egale) a
        (al|por lo|pelo|ao) menos
        como minimo | no menos de | (mayor|maior) (o|ou) igual (a|que) | almeno | non meno di | come minimo
        maggiore o uguale a | no minimo | nao menos (de|que) | не менее [чем] | не меньше [чем] | минимум
        по (меньшей|крайней) мере | больше или равно
        至少 | 不少于 | 不小于 | 不低于 | 大于等于 | 大于或等于 | 最少 | 起码 | 少なくとも | 最低 | 최소 | 적어도
        """, _BOUND),
    Phrases("before.at-most", r"\le ", """
        at most | (no|not) (more|greater|bigger|larger|higher|longer|older|over|above) [than] | up to | maximum of
        within
        (less|fewer|smaller|lower) than or equal to | at a maximum | co najwyzej | nie wiecej niz | en (fazla|cok)
        hogst
        hoyst | hojst | (hoogstens|maximaal) | ten hoogste | nejvyse | cel mult | legfeljebb | nhieu nhat
        paling banyak
        niet meer dan | enintaan | hochstens | maximal | nicht mehr als
        kleiner oder gleich | au (plus|maximum) | pas plus de | (inferieur|inferieure) ou (egal|egale) a | a lo sumo
        como (maximo|mucho) | no mas de | menor (o|ou) igual (a|que) | al (massimo|piu) | non piu di
        minore o uguale a
        no maximo | nao mais (de|que) | как максимум | не более [чем] | не больше [чем] | максимум | меньше или равно
        至多 | 最多 | 不超过 | 不多于 | 不大于 | 不高于 | 小于等于 | 小于或等于 | 多くとも | 最大 | 최대 | 많아야
        """, _BOUND),
    Phrases("before.more", "> ", """
        (wiecej|ponad) [niz] | (mer|fler) (an|enn) | flere enn | (meer|groter) dan | vice nez | mai mult (de|decat)
        tobb mint | (nhieu|lon) hon | lebih (dari|besar dari) | mere end | (mere|flere) end
        (more|greater|bigger|larger|higher|longer|older|better) than | above | (exceed|exceeds|exceeding) | over
        beyond
        in excess of | upwards of | mehr als | grosser als | uber | plus (de|que|grand que) | (superieur|superieure) a
        mas (de|que) | (mayor|maior) (que|de|a|do que) | superior a | piu (di|che) | maggiore di | superiore a | oltre
        mais (de|que|do que) | acima de | более [чем] | больше [чем] | свыше | выше | 超过 | 大于 | 多于 | 高于
        """, _BOUND),
    Phrases("before.less", "< ", """
        (mniej|ponizej) [niz] | (mindre|farre) (an|enn|end) | faerre end | (minder|kleiner) dan | mene nez
        mai putin (de|decat) | kevesebb mint | (it|nho) hon | kurang dari | lebih kecil dari
        (less|fewer|smaller|lower|shorter|younger|worse) than | below | under | short of | weniger als | kleiner als
        unter
        moins (de|que) | (inferieur|inferieure) a | menos (de|que|do que) | menor (que|de|a|do que) | inferior a
        meno (di|che) | minore di | inferiore a | sotto | abaixo de | менее [чем] | меньше [чем] | ниже
        小于 | 少于 | 低于 | 不到 | 不足 | 未满
        """, _BOUND),
    Phrases("before.minus", "-", """
        minus | negative | menos | moins | meno | минус | negativ | 负 | 負 | マイナス | 마이너스
        """),
    Phrases("before.loss", "-", """
        in debt (by|of)
        (loss|debt|deficit|decrease|drop|decline|fall|reduction|shortfall|shortage) of
        """, _LOSS),
    Phrases("before.plus-minus", r"\pm ", "plus or minus | plus minus"),
    Phrases("before.about", ABOUT, """
        about | around | approximately | approx | roughly | nearly | almost | circa | close to | near | practically
        virtually
        (estimated|estimated at|estimated to be) | (more|give) or (less|take) | on the order of | in the vicinity of
        okolo | prawie | (w|jest) przyblizeniu | yaklasik [olarak] | ungefar | cirka | nastan | ongeveer | bijna
        priblizne
        temer | aproximativ | aproape | korulbelul | majdnem | khoang | xap xi | (sekitar|hampir|kira kira) | omtrent
        not far from | ungefahr | etwa | rund | zirka | fast | beinahe | nahezu | knapp | environ | presque
        quasiment
        a peu pres | autour de | aproximadamente | casi | alrededor de | cerca de | quasi | all'incirca | intorno a
        quase
        por volta de | около | примерно | приблизительно | почти | порядка
        approximate | unos | unas
        약 | 约 | 約 | 大约 | 大概 | 接近 | 将近 | 差不多 | 几乎 | およそ | ほぼ | 대략 | 거의
        """),
    Phrases("before.times", NOT, """
        (twice|thrice|half|double|N times|times|N fold|fold) as (many|much|large|big|long|old|great|high|tall|far) as
        (twice|thrice|half|double|N times|times) as (fast|heavy|wide|deep|likely|expensive|small|few|short) as
        (twice|thrice|half|double|N times|times) (the|that) [of]
        (double|triple|quadruple|half) of [the]
        twice | thrice | double | triple | quadruple | half | (N|dozen|hundred|thousand|million|many|several) times
        doppelt so (viel|viele|gross) wie | halb so (viel|viele|gross) wie | (halfte|doppelte|dreifache) (von|der|des)
        zweimal | dreimal | viermal | funfmal | zehnmal | N mal | (moitie|double|triple|tiers|quart) (de|du)
        N fois | (mitad|doble|triple|tercio|cuarto) (de|del)
        N veces
        (meta|doppio|triplo|terzo|quarto) (di|del) | N volte | (metade|dobro|triplo|terco) (de|do) | N vezes
        (половина|половину|треть|четверть|удвоенное) [от] | вдвое (больше|меньше) | в N раза (больше|меньше) | 一半
        一半的 | 两倍的 | 两倍 | 分之一
        """),
    Phrases("before.part", NOT, """
        (hundred|thousand|million|billion) and
        (half|halves|third|thirds|quarter|quarters|fourth|fifth|sixth|eighth|tenth|tenths|percent|per cent|%) of [a|the]
        (hundreds|thousands|millions|billions|dozens|tens|scores) of | N of
        """),
    Phrases("before.operation-of", NOT, """
        (square|cube|square root|cube root|N root|root|reciprocal|inverse|opposite|negative) of
        (factorial|logarithm|log|power) of
        (multiple|multiples|divisor|divisors|factors|powers|complement|cosine|sine|tangent|subset|exterior) of
        (is|are|be|being) a [prime|proper|positive|common] factor of | instead of | outside [of]
        the (sum|product|difference|quotient|derivative|integral|absolute value|magnitude|conjugate) of
        ^ (sum|product|difference|quotient) of
        """),
    Phrases("before.operation-with", NOT, """
        (subtract|subtracted|subtracting|taken|taken away|deducted) from | (subtract|take|deduct) N from
        (add|adding) N to | (added|adding) to | N (plus|over|mod|modulo|choose|point|increased by|decreased by)
        N (divided by|multiplied by|raised to|reduced by|added to|subtracted from)
        (increased|decreased|reduced|divided|multiplied|divisible) by | raised to | divides
        """, _CHANGE),
    Phrases("before.function", NOT, """
        sin | cos | tan | cot | sec | csc | arcsin | arccos | arctan | sinh | cosh | tanh | log | ln | exp | sqrt
        cbrt
        """),
    Phrases("before.range", NOT, """
        ^ from N to | (is|are|be|ranges|range|ranging|anywhere|anything|lies|somewhere|varies) from N to
        between N and
        between W and | zwischen N und | entre N (et|y|e) | tra N e | от N до | ^ (von|de|da) N (bis|a)
        """),
    Phrases("before.moment", NOT, """
        after | before | until | till | since | past | preceding | following | prior to | earlier than | later than
        past
        nach | vor | apres | avant | despues de | antes de | dopo | prima di | depois de | после | до | 之前 | 之后
        """, kinds="text time date"),
]  # fmt: skip
"""Words at the end of what precedes a box, and what stands for them before the answer."""
_SOLUTION = "answer|solution|root|option|choice|correct|right|valid|possible|allowed|acceptable|true|it|admissible"
_REJECTED = (
    "wrong|incorrect|rejected|invalid|extraneous|excluded|impossible|false|eliminated|discarded|inadmissible|"
    "unacceptable|disqualified|ruled out|too big|too small|too large|too high|too low|too many|too few"
)
AFTER = [
    Phrases("after.not", NOT, f"""
        (is|was|are|were|would be|must be|should be|can be) [also|clearly|therefore|thus] ({_REJECTED})
        (is|was|are|were|would be) not [a|an|the|our|one of the] [final|right|correct|valid|real] ({_SOLUTION})
        (isn't|wasn't|aren't) [a|an|the|our|one of the] [final|right|correct|valid|real] ({_SOLUTION})
        (cannot|can't|can not|couldn't) be [right|correct|true|it|the answer|a solution] $ | fails
        (does not|doesn't|do not|did not) (work|satisfy|hold|fit|check|count|solve) | ? no
        wrong | incorrect | rejected | invalid | extraneous
        ist (falsch|ungultig|unmoglich|keine losung|nicht richtig|nicht korrekt|nicht moglich)
        ist nicht die [richtige] (antwort|losung)
        est (faux|fausse|incorrect|incorrecte|exclu|exclue)
        n'est pas [la|une|le] [bonne] (reponse|solution|correct|possible)
        es (incorrecto|incorrecta|falso|falsa|imposible)
        no es [la|una|el] (respuesta|solucion|correcto|correcta|posible)
        e (sbagliato|sbagliata|errato|errata|falso|impossibile)
        non e [la|una] (risposta|soluzione|corretto|possibile)
        e (errado|errada|incorreto|falso|impossivel) | nao e [a|uma] (resposta|solucao|correto|correta|possivel)
        не является | неверно | неправильно | не подходит | не решение
        不是 | 不对 | 错误 | 是错的 | 不成立 | 舍去 | 不符合 | 不正确 | 不合题意 | は誤り | は間違い | は不適
        ではない | じゃない
        ではありません | 이 아니다 | 가 아니다 | 은 아니다 | 는 아니다 | 이 아닙니다 | 가 아닙니다 | 이 아니 | 가 아니
        """, _WRONG),
    Phrases("after.bound", "", """
        (or|and) (more|less|fewer|greater|higher|above|over|larger|bigger|smaller|lower|below|under)
        (or|and) (older|younger|better|worse)
        (or|and) (so|thereabouts|later|earlier|longer|shorter|up|upward|upwards|beyond|something|counting)
        (o|ou|oder|или) (mas|menos|plus|moins|mehr|weniger|более|менее|больше|меньше|piu|meno|mais|mayor|menor)
        (et|y|e|und|и) (plus|mas|oltre|piu|mais|mehr|более|больше) | (minimum|maximum|minimal|maximal|tops) $
        """),
    Phrases("after.at-least", "", """
        at [the|a|its|the very] (least|most|minimum|maximum) | [as] (a|the) (minimum|maximum) $
        """, _BOUND),
    Phrases("after.than", "", """
        (more|less|fewer|greater|larger|bigger|smaller|higher|lower) than (the|a|an|that|it|this|N|what|twice|half|its)
        (more|less|fewer|greater|larger|bigger|smaller|higher|lower) than (his|her|their|our|x|n|y)
        (older|younger|longer|shorter) than (the|a|an|that|it|this)
        """, _DIFFERENCE),
    Phrases("after.rounded", "", "[if|when] (rounded|rounding) (up|down|off) | before rounding", _ROUNDED),
    Phrases("after.fold", "", "fold | added to", _TIMES),
    Phrases("after.share", "", "out of [a|every|each|the|about] N | out of [every|each] W N", _SHARE),
    Phrases("after.rate", "", "(for|in|to|per) (every|each) N | per N | to every N", _RATE),
    Phrases("after.below", "", """
        [degrees] (below|under|beneath) (zero|0|sea|freezing|ground|the) | in (debt|the red|arrears)
        """, _BELOW),
    Phrases("after.range-of-asia", NOT, """
        以上 | 以下 | 以内 | 以外 | 左右 | 上下 | 及以上 | 及以下 | 未満 | 未满 | 이상 | 이하 | 미만 | 초과
        より大きい | より小さい | を超える | より多い
        より少ない
        """),
    Phrases("after.about", ABOUT, """
        approximately | approx | roughly | ish | give or take | more or less | ungefahr | aproximadamente | environ
        circa
        mas o menos | plus ou moins | piu o meno | mais ou menos | примерно
        """),
    Phrases("after.part", "", """
        and (a|an|one|two|three|N) (half|third|quarter|thirds|quarters|fourth|fourths|fifth|fifths)
        squared | cubed | factorial | halves | thirds | quarters | fourths | fifths | sixths | sevenths | eighths
        ninths
        tenths | hundredths | thousandths | percent | per cent | percentage | hundreds | thousands | millions
        billions
        dozens | tens | gross | milliers | migliaia | millares | milhares | centinaia | centaines | centenas
        dizaines
        тысяч | сотен | десятков | 的一半 | 的两倍 | 的平方 | の半分 | の2倍 | 의 절반 | 의 두 배
        """),
    Phrases("after.rounding", NOTHING, "to N (decimal|decimals|d|dp|significant|s|sf|places|digits|figures)"),
    Phrases("after.operation", "", """
        times N | (plus|minus) N | over N | divided by | multiplied by | raised to | to the power | to the W power
        to N
        (increased|decreased|reduced) by | choose N | point N | [with|and] [a] (remainder|rem) [of] N | r N
        through N
        until N | bis N
        """),
    Phrases("after.outside", NOT, """
        except | excluding | without | minus | but not | other than | apart from | save for | unless
        (together|along|united|joined|intersected) with
        """, kinds="intervals set list named assigned tuple"),
]  # fmt: skip
"""Words at the beginning of what follows a box, and what stands for them beside the answer."""

_FILLERS = {
    *word_list("""a an the equal equals to in on at option choice answer number value exactly be just only simply quite
    really actually necessarily always even""")
}
"""Words that may stand between "not" and what it denies."""
_NUMBER_WORDS = {
    *word_list("""one two three four five six seven eight nine ten eleven twelve half hundred thousand dozen million
    zwei drei vier funf deux trois quatre cinq dos tres cuatro cinco due tre quattro cinque dois duas два три четыре
    пять""")
}
_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|-?\d[\d.,]*(?<![.,])(?:/\d+)?%?|\S")
_MARKS = re.compile(
    r"\\(?:q?quad|left|right|text(?:bf|it|rm)?|math(?:bf|rm))(?![a-z])|\\[,;:! ]|[$*_~{}]|\\(?=[()\[\]])|<[^<>]*>"
)
_STARTS = {*word_list(". , ; : ( = ! ? is are be was were")}
_ASIAN_VERBS = "可以有是为為要需共了于於能得会會只达達到でもに한"
_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def spelled(phrases: str) -> Iterator[tuple[str, ...]]:
    """The rows of words that phrases stand for."""
    for phrase in filter(None, map(str.strip, re.split(r"\n|(?<=\s)\|(?=\s)", phrases))):
        parts = re.findall(r"\([^()]*\)|\[[^\[\]]*\]|\S+", phrase)
        choices = [
            part[1:-1].split("|") if part[0] == "(" else ["", *part[1:-1].split("|")] if part[0] == "[" else [part]
            for part in parts
        ]
        yield from (tuple(" ".join(choice).split()) for choice in product(*choices))


class Index(NamedTuple):
    """The phrases of a table by the word that stands next to the box, the longest first."""

    words: dict[str, list[tuple[tuple[str, ...], Phrases]]]
    signs: dict[str, list[tuple[str, Phrases]]]
    """Those of languages without blanks, by the character next to the box."""


INDEXES = dict[bool, Index]()
"""The indexes of `AFTER` and of `BEFORE`, from their first use on."""


def _index(last: bool) -> Index:
    """The index of `BEFORE`, whose phrases are reversed, or of `AFTER`."""
    if index := INDEXES.get(last):
        return index
    index = INDEXES[last] = Index({}, {})
    for rule in BEFORE if last else AFTER:
        for row in spelled(rule.words):
            if _ASIAN.match(row[0]):
                text = " ".join(row)
                index.signs.setdefault(text[-1 if last else 0], []).append((text, rule))
            else:
                words = row[::-1] if last else row
                index.words.setdefault(words[0], []).append((words, rule))
    for table in index:
        for found in table.values():
            found.sort(key=lambda entry: -len(entry[0]))
    return index


def may_end_with(word: str) -> bool:
    """Whether a word can be the last one of what changes an answer after it."""
    return word in _index(True).words or word in _FILLERS or word == "or"


def may_begin_with(word: str) -> bool:
    """Whether a word can be the first one of what changes an answer before it."""
    return word in _index(False).words or _ASIAN.match(word) is not None


def _tokens(text: str) -> list[str]:
    plain = _MARKS.sub(" ", text.replace("’", "'"))
    plain = plain.lower() if plain.isascii() else fold(plain)
    return _TOKEN.findall(re.sub(r"(?<=[^\W\d_])[-‐](?=[^\W\d_])", " ", plain))


def _fits(phrase: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether the first tokens are those of a phrase."""
    size = len(tokens)
    for n, word in enumerate(phrase):
        token = tokens[n] if n < size else ""
        if word == token and token:
            continue
        if word == "N":
            fits = token != "" and (token.rstrip("%")[-1:].isdigit() or token in _NUMBER_WORDS)
        elif word == "W":
            fits = token.isalpha()
        else:
            fits = not token or (word == "^" and token in _STARTS) or (word == "$" and token in ".,;!?)")
            fits &= word in "^$"
        if not fits:
            return False
    return True


def rule_before(text: str, around: About | None = None) -> Phrases | None:
    """The rule for the words at the end of a text that changes an answer."""
    index, tail = _index(True), text[-80:]
    if tail[-1:] in index.signs:
        for phrase, rule in index.signs[tail[-1]]:
            if tail.endswith(phrase) and rule.changes(around):
                return rule
    if (bare := tail.rstrip(_ASIAN_VERBS)) != tail and bare[-1:] in index.signs:  # 至少有
        for phrase, rule in index.signs[bare[-1:]]:
            if bare.endswith(phrase) and rule.changes(around):
                return rule
    tokens = _tokens(tail)[::-1]
    if not tokens:
        return None
    for phrase, rule in index.words.get(tokens[0], ()):
        if _fits(phrase, tokens) and rule.changes(around):
            return rule
    skipped = 0
    while skipped < 3 and skipped < len(tokens) and tokens[skipped] in _FILLERS:
        skipped += 1
    for phrase, rule in index.words.get(tokens[skipped], ()) if 0 < skipped < len(tokens) else ():
        if rule.id == "before.not" and _fits(phrase, tokens[skipped:]):
            return rule
    return None


def rule_after(text: str, around: About | None = None) -> tuple[Phrases, str] | None:
    """The rule for the words at the beginning of a text that changes an answer, and the words."""
    index, head = _index(False), text[:80].lstrip()
    for skipped in range(3 if _ASIAN.match(head) else 0):  # 人以上
        for phrase, rule in index.signs.get(head[skipped : skipped + 1], ()):
            counted = not skipped or rule.id == "after.range-of-asia"
            if counted and head.startswith(phrase, skipped) and rule.changes(around):
                return rule, phrase
    tokens = _tokens(head)
    for phrase, rule in index.words.get(tokens[0], ()) if tokens else ():
        if _fits(phrase, tokens) and rule.changes(around):
            if rule.joined == NOTHING:
                return None
            return rule, " ".join(tokens[: len(phrase) - (phrase[-1] == "$")])
    return None
