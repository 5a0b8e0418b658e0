"""Words of other languages in answers: units, connectors, things that are counted, scales, and signs for numbers.

Every table is one of meanings: a line has the English word first and then the words of other languages, each as `fold`
leaves it (without capitals and accents). `stem(a|b)` stands for stema and stemb. A word that no table has stays as it
is written, and the judge treats it as a word that it does not know.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache


def fold(text: str) -> str:
    """A text without capitals and accents: Días is dias, Straße strasse. Korean syllables stay whole."""
    letters = unicodedata.normalize(
        "NFKD", text.casefold().replace("й", "\0").replace("ł", "l").replace("ø", "o").replace("ı", "i")
    )
    marked = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", marked.replace("\0", "й"))


def _spelled(line: str) -> Iterator[str]:
    """The words of a line, with those in brackets written out."""
    for word in line.split():
        stem, _, endings = word.rstrip(")").partition("(")
        yield from (stem + ending for ending in endings.split("|"))


def _meanings(lines: str) -> dict[str, str]:
    """Every word of a line → its first word."""
    table: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        meaning, _, words = line.partition(":")
        table |= dict.fromkeys(_spelled(words), meaning)
    return table


_BASES = """
    meter: metr(o|os|e|es|i|y|ow|u|a) metern meter метр(|а|ов|ы|ах) 米 メートル 미터
    gram: gram(o|os|m|mes|mi|mo|mu|me|mas|ma|ow|y|a) gramme grammes gramm грамм(|а|ов|ы) 克 グラム 그램
    liter: litr(o|os|e|es|i|y|ow|u|a) litern liter литр(|а|ов|ы) 升 リットル 리터
"""
_PREFIXES = """
    kilo: kilo quilo кило 千 キロ 킬로
    hecto: hecto hekto гекто
    deci: deci dezi деци 分 デシ
    centi: centi zenti senti санти 厘 センチ 센티
    milli: milli mili милли 毫 ミリ 밀리
    micro: micro mikro микро 微 マイクロ
"""
_SIMPLE = """
    kilometer: 公里 км
    kilogram: kilo kilos quilo quilos 公斤 кг キログラム
    centimeter: 公分 センチ см
    millimeter: мм
    meter: м
    gram: г
    liter: л
    milliliter: мл cc
    inch: pulgada pulgadas pouce pouces zoll pollice pollici polegada polegadas cal(e|i) дюйм(|а|ов) 英寸 インチ 인치
    foot: pied pieds fuss piedi stop(y|a) фут(|а|ов) 英尺 フィート 피트
    yard: yarda yardas 码
    mile: milla millas meile meilen miglio miglia milha milhas mile миль миля мили 英里 マイル 마일
    hectare: hectarea hectareas hektar гектар(|а|ов) 公顷 ヘクタール 헥타르
    second: sekunder detik saniye giay segundo segundos seconde secondes sekunde sekunden secondo secondi
    second: sekund(a|y) секунд(|а|ы)
    second: сек с 秒 秒钟 秒間 초
    minute: minuter menit dakika phut minuto minutos minuten minuti minut(|a|y) минут(|а|ы) мин 分钟 分鐘 分間 분
    hour: hora horas heure heures stunde stunden ore godzin(|a|y) uur час(|а|ов) ч 小时 小時 時間 시간
    hour: std uren timme timmar saat gio
    day: dag dagar hari ngay dia dias jour jours tage tagen giorno giorni dni dzien dagen день дня дней 天 日間 日 일
    week: vecka veckor minggu hafta tuan semana semanas semaine semaines woche wochen settimana settimane
    week: tydzien tygodni tygodnie weken недел(я|и|ь)
    week: 周 星期 週間 주
    month: manad manader bulan mes meses mois monat monate monaten mese mesi mes(|es) miesiac miesiecy miesiace
    month: maanden месяц(|а|ев)
    month: 个月 個月 か月 ヶ月 ヵ月 개월
    year: ans jaren tahun yil ano anos annee annees jahr jahre jahren anno anni rok lat lata jaar
    year: год года лет 年 年間 년
    pound: libra libras libbra libbre funt(|y|ow) фунт(|а|ов) 磅 ポンド 파운드
    ton: tonelada toneladas tonne tonnen tonnellata tonnellate ton(a|y) тонн(|а|ы) 吨 トン 톤
    degree: grado grados degre degres grad gradi grau graus stopni stopien градус(|а|ов) 度 도
    percent: porciento prozent percento procent procenty procento процент(|а|ов) パーセント 퍼센트 프로
    dollar: dolar dolares dollari dolarow dolary dolara доллар(|а|ов) 美元 ドル 달러
    euro: евро 欧元 ユーロ 유로
    yuan: 人民币 块 块钱 元
    yen: 日元 円 엔
    rub: рубл(ь|я|ей) руб rubl(o|os|i|e|es|u|ow) rublos rubel
    pln: zl zloty zlotych zlote zlotych
    krw: 원 won
    inr: rupia rupias roupie roupies rupien 卢比
    franc: franken franchi franko francos франк(|а|ов)
    cent: центов цента цент 美分
    penny: пенсов
    radian: radianes radianos radianti radiants радиан(|а|ов) 弧度
    unit: unidad unidades unite unites einheit einheiten unita unidade unidades jednost(ek|ki|ka) единиц(|а|ы)
    unit: 单位 単位
"""
_SQUARED = """
    squared: cuadrad(o|os|a|as) carre(|s|e|es) quadrat(o|i|a|e) quadrad(o|os) kwadratow(y|e|ych)
    cubed: cubic(o|os) cub(o|i) szescienn(y|e|ych)
    square: quadrat квадратн(ый|ых|ые) 平方 제곱 평방
    cubic: kubik кубическ(ий|их|ие) 立方 세제곱
    per: por par pro al all na za в 每 毎 / a
"""
_CONNECTORS = """
    and: dan va en e i y et und sowie och og и та 和 与 與 及 以及 と および 및 와 과 그리고 ja ve
    or: atau of o ou u oder eller lub albo или або либо nebo veya sau hoặc hoac 或 或者 または もしくは 또는 혹은
    or: vagy oppure
"""
ALONE_IN_TEXT = frozenset({"y", "o", "u", "e", "i", "en", "of"})
"""Connectors that are also other words or letters, which count only as the whole of a \\text{…} between two values."""
_SCALE_WORDS = {
    10**2: "hundert сотен сотни 百 백 hundred",
    10**3: "mil mille mila tausend tysiac(|e) tysiecy тысяч(|а|и) тыс 千 천 thousand",
    10**4: "万 萬 만",
    10**5: "lakh lac",
    10**6: "millon(|es) million(|en) milione milioni milhao milhoes milion(|y|ow) миллион(|а|ов) млн mln mio million",
    10**7: "crore",
    10**8: "亿 億 억",
    10**9: "milliard(|e|en|i|o) miliard(|y|ow|o|i) milliards миллиард(|а|ов) млрд mrd mld bilhao bilhoes billion",
    10**12: "兆 조 trillion",
    12: "docena(|s) douzaine(|s) dutzend dozzina dozzine duzia(|s) tuzin дюжин(|а|ы) 打 dozen",
}
SCALES = {word: size for size, words in _SCALE_WORDS.items() for word in _spelled(words)}
"""Words that multiply the number before them."""
_COUNTED = """
    people: orang mensen manniskor kisi nguoi personnes pessoas persone personen leute menschen osob(|y|a) ludzi
    people: человек(|а) люд(ей|и) personas 사람 人
    children: ninos ninas criancas kind(er|ern) enfants bambin(i|o|e|a) dzieci детей дети ребенка ребят
    men: hombres hommes manner uomini mezczyzn мужчин
    women: mujeres femmes frauen donne kobiet женщин
    students: estudiantes etudiants estudantes schuler schulern studenten student(i|en|ow) uczniow
    students: alumnos eleves учеников ученика студентов студента
    girls: madchen ragazze dziewczyn(|ek) девочек девочки
    boys: jungen ragazzi chlopcow мальчиков мальчика
    apples: manzanas pommes macas apfel apfeln mele jablek jablka яблок яблока яблоки 苹果 リンゴ りんご 사과
    oranges: naranjas oranges laranjas orangen arance pomarancz апельсинов апельсина 橙子
    books: libros livres livros bucher buchern libri ksiazek ksiazki книг книги 书 本
    pages: paginas pages seiten pagine stron strony страниц страницы 页
    eggs: huevos oeufs ovos eier eiern uova jaj jajek яиц яйца 鸡蛋
    cookies: galletas biscuits biscoitos kekse keksen biscotti ciastek печений печенья
    marbles: canicas billes murmeln biglie kulek шариков шарика
    balls: pelotas bolas balles balle ballen palle pilek мячей мяча 球
    pencils: lapices crayons lapis bleistifte matite olowkow карандашей карандаша 铅笔
    flowers: flores fleurs blumen fiori kwiatow цветов цветка 花
    cars: coches carros voitures autos auto macchine samochodow машин машины
    trees: arboles arbres arvores baume alberi drzew деревьев дерева 树
    points: puntos pontos punkte punkten punti punktow punkty очков очка точек точки балл(|а|ов) 分
    ways: maneras formas manieres facons moglichkeiten wege modi sposobow sposoby способов способа 种方法 方法
    solutions: soluciones solucoes losungen soluzioni rozwiazan решений решения
    values: werte valori wartosci значений значения
    numbers: zahlen numeri liczb liczby чисел числа
    pieces: stuck stucke stucken pezzi sztuk(|i) штук(|и) шт kusov
    trips: fahrten viaggi поездок
    packs: packungen pakete packchen pacchi paczek пачек пачки
    boxes: kisten schachteln scatole pudelek коробок коробки
    tickets: karten biglietti biletow билетов билета
    coins: munzen monete monet(|y) монет монеты
    letters: buchstaben briefe lettere букв буквы
    words: worter parole slow слов слова
    sides: lati bokow сторон стороны
    cows: kuhe mucche krow коров коровы
    chickens: huhner galline kur kurczakow кур куриц
    dogs: hunde cani psow собак собаки
    cats: katzen gatti kotow кошек кошки
    fish: fische fischen pesci ryb(|y) рыб рыбы
    houses: hauser case domow домов дома
    rooms: zimmer stanze pokoi комнат комнаты
    bottles: flaschen bottiglie butelek бутылок бутылки
    glasses: glaser bicchieri szklanek стаканов стакана
    cups: tassen tazze filizanek чашек чашки
    slices: scheiben fette kawalkow кусков куска кусочков
    rows: reihen file rzedow рядов ряда
    teams: mannschaften squadre druzyn команд команды
    games: spiele partite gier игр игры
    classes: klassen classi klas классов класса
    others: 가지 마리 개 명 권 살 대 장 송이 그루 자루 번 회 층 세트 병 잔 판 쪽
    others: つ 個 枚 冊 匹 頭 羽 台 回 歳 本 点 通り 種類 人 名 番目 才
"""
_CHANGES = """
    less: menos moins meno weniger меньше mniej
    more: mehr mais mas больше wiecej piu plus
    fold: veces fois vezes volte fach mal раз razy
    part: tercio(|s) cuarto(|s) quinto(|s) sexto(|s) decimo(|s) centesimo(|s) milesimo(|s)
    part: cinquieme(|s)
    part: sixieme(|s) septieme(|s) huitieme(|s) neuvieme(|s) dixieme(|s) centieme(|s) millieme(|s) medio(|s)
    part: mitad(|es)
    part: halfte meta polowa половина mitte moitie(|s) demi(|s) septimo(|s) octavo(|s) noveno(|s) metade(|s) terco(|s)
    part: terzi quarti decimi
    pairs: pare(|s) paire(|s) paar par(|es)
    tens: dizaine(|s) decena(|s) dezena(|s) centena(|s) centaine(|s) cientos millares milhares milliers billones
    tens: billon bilion bilioni trillones trilhoes centinaia migliaia quinzaine(|s) vingtaine(|s) trentaine(|s)
    about: environ aproximadamente circa etwa ungefahr presque casi quase
    minus: negativo(|s) negatif(|s) sous sans dans hors vers sauf jamais apres tras antes despues
    sub: dobles menores mayores maiores
"""


def _units() -> dict[str, str]:
    named = _meanings(_SIMPLE)
    bases, prefixes = _meanings(_BASES), _meanings(_PREFIXES)
    for prefix, size in prefixes.items():
        for base, unit in bases.items():
            if base.isascii() == prefix.isascii():
                named.setdefault(prefix + base, size + unit)
    return bases | named


_UNIT_NAMES = _units()
_POWERS_AND_PER = _meanings(_SQUARED)
_LINKS = _meanings(_CONNECTORS)
_THINGS = _meanings(_COUNTED)
_CHANGERS = frozenset(_meanings(_CHANGES)) | SCALES.keys()
_PREFIXED_POWERS = ("quadrat", "kubik", "平方", "立方", "제곱", "세제곱", "평방")
_PERCENT = re.compile(r"\b(?:(?:por|per|pro|pour) cento?|por ciento)\b")
_CUBES = re.compile(r"\b((?:kilo|deci|centi|milli)?metres?) cubes?\b")
_ARTICLES = re.compile(r"^(?:l'|d'|de |le |la |die |der |das |el |los |las )")


def link(word: str) -> str:
    """ "and" or "or" for a connector of any language, else ""."""
    return _LINKS.get(fold(word), "")


LINK_WORDS = "|".join(sorted((re.escape(word) for word in _LINKS if word not in ALONE_IN_TEXT), key=len))
"""A pattern for connectors of other languages that are no other words."""


@lru_cache(maxsize=4096)
def english_unit(words: str) -> str:
    """Words of a unit with those of other languages in English: kilómetros por hora is kilometer per hour."""
    folded = _CUBES.sub(r"\1 cubed", _PERCENT.sub("percent", fold(words)))
    if folded == words and folded.isascii() and not any(word in _UNIT_NAMES for word in re.split("[ /']+", folded)):
        return words
    known = {fold(word): word for word in re.split(r"[ /']+", words)}  # as written: kPa
    found = list[str]()
    for word in re.split(r"[ ']+", folded.replace("/", " / ")):
        found.append(_english_word(word.rstrip("."), first=not found) or known.get(word, word))
    return " ".join(found)


def _english_word(word: str, *, first: bool) -> str:
    """A word of a unit in English; "" if it has no meaning here. first: no other words stand before it."""
    if unit := _UNIT_NAMES.get(word) or ("" if first and word.isascii() else _POWERS_AND_PER.get(word)):
        return unit
    for power in _PREFIXED_POWERS:
        if word.startswith(power) and (unit := _UNIT_NAMES.get(word.removeprefix(power))):
            return f"{_POWERS_AND_PER[power]} {unit}"
    per = word.partition("每")
    return f"{_UNIT_NAMES[per[0]]} per {_UNIT_NAMES[per[2]]}" if {per[0], per[2]} <= _UNIT_NAMES.keys() else ""


def scale_of(word: str) -> tuple[int, str] | None:
    """The factor that a word means, and the rest of the word: thousand, million, 万元; None for another word."""
    folded = fold(word).strip(".")
    for name in (folded, folded.removesuffix("s")):
        if name in SCALES:
            return SCALES[name], ""
    if not word.isascii() and word[0] in SCALES and folded not in _UNIT_NAMES:
        return SCALES[word[0]], word[1:]
    return None


def is_counted(words: str) -> bool:
    """Whether words of another language name what a number counts."""
    folded = fold(words)
    return _ARTICLES.sub("", folded) in _THINGS or folded in _UNIT_NAMES


def thing(words: str) -> str:
    """The English plural for a thing that another language counts, or the words themselves."""
    return _THINGS.get(_ARTICLES.sub("", fold(words)), words)


def changes_a_number(words: Iterable[str]) -> bool:
    """Whether one of the words scales, negates, compares or hedges in another language."""
    return any(fold(word) in _CHANGERS for word in words)


_NUMBERS = """
    0: cero null nolla ноль нуль nul
    1: uno une un eins uma um один одна jeden
    2: dos deux zwei dois duas два две dwa
    3: tres trois drei tre три trzy
    4: cuatro quatre vier quattro quatro четыре cztery
    5: cinco cinq funf cinque пять piec
    6: seis sechs sei шесть szesc
    7: siete sept sieben sette sete семь siedem
    8: ocho huit acht oito восемь osiem
    9: nueve neuf neun nove девять dziewiec
    10: diez dix zehn dieci dez десять dziesiec
    11: onze undici одиннадцать jedenascie
    12: doce douze zwolf dodici doze двенадцать dwanascie
    13: trece treize dreizehn tredici treze тринадцать
    14: catorce quatorze vierzehn quattordici четырнадцать
    15: quince quinze funfzehn quindici пятнадцать
    16: dieciseis seize sechzehn sedici dezesseis шестнадцать
    17: diecisiete siebzehn diciassette dezessete семнадцать
    18: dieciocho achtzehn diciotto dezoito восемнадцать
    19: diecinueve neunzehn diciannove dezenove девятнадцать
    20: veinte vingt zwanzig venti vinte двадцать dwadziescia
    100: cien cent hundert einhundert cento cem сто
    1000: mil mille tausend eintausend тысяча tysiac
"""
_NUMBER_WORDS = {word: int(number) for word, number in _meanings(_NUMBERS).items()}


def number_of(word: str) -> int | None:
    """The number that a word of another language means: fünf is 5."""
    return _NUMBER_WORDS.get(fold(word))


_NUMERAL = dict(zip("零一二三四五六七八九", range(10), strict=True)) | {"〇": 0, "两": 2, "兩": 2, "壹": 1}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "萬": 10**4, "만": 10**4, "亿": 10**8, "億": 10**8, "억": 10**8, "兆": 10**12, "조": 10**12}


def chinese_numeral(text: str) -> int | None:
    """The number that Chinese numerals alone write: 十二, 三百零五, 两万; None for another text."""
    if not 0 < len(text) < 30 or not {*text} <= _NUMERAL.keys() | _PLACES.keys() | _MYRIADS.keys():
        return None
    if {*text} <= _NUMERAL.keys():
        return _NUMERAL[text] if len(text) == 1 else None  # 一二 are two numbers, or 12
    total, section, digit = 0, 0, 0
    lowest = 10**16
    for sign in text:
        if sign in _NUMERAL:
            if digit:
                return None
            digit = _NUMERAL[sign]
        elif sign in _PLACES:
            section, digit = section + (digit or 1) * _PLACES[sign], 0
        else:
            if _MYRIADS[sign] >= lowest or section + digit == 0:
                return None
            lowest = _MYRIADS[sign]
            total, section, digit = total + (section + digit) * lowest, 0, 0
    return total + section + digit


_NUMERALS = "".join((*_NUMERAL, *_PLACES, *_MYRIADS))
_COUNTING = re.compile(rf"([{_NUMERALS}]+)(\D*)")
_SHARE = re.compile(rf"([{_NUMERALS}]+|\d{{1,9}})分之([{_NUMERALS}]+|\d{{1,9}})")


def chinese_number(text: str) -> tuple[Fraction, str] | None:
    """The number at the beginning of Chinese words, and the words after it: 五个 is 5 个, 三分之一 is 1/3."""
    if share := _SHARE.fullmatch(text):
        bottom, top = (int(x) if x.isdecimal() else chinese_numeral(x) for x in share.groups())
        return (Fraction(top, bottom), "") if bottom and top is not None else None
    counting = _COUNTING.fullmatch(text)
    number = chinese_numeral(counting[1]) if counting else None
    return (Fraction(number), counting[2]) if counting and number is not None else None


_BIG = "".join(_MYRIADS)
_WITH_SCALES = re.compile(
    rf"(?<![\d.,])(?:\d{{1,9}}(?:\.\d{{1,9}})?(?:[千百천백]?[{_BIG}]|[千천](?![克米瓦卡帕焦伏赫]))){{1,4}}(?:\d+(?![\d.]))?"
)
_PART = re.compile(rf"(\d+(?:\.\d+)?)([千百천백]?)([{_BIG}]?)")


def _without_scales(found: re.Match[str]) -> str:
    total, lowest = Fraction(0), 10**20
    for digits, place, myriad in _PART.findall(found[0]):
        size = SCALES.get(place, 1) * SCALES.get(myriad, 1)
        if size >= lowest or Fraction(digits) * size >= lowest or (size == 1 and 10 * Fraction(digits) < lowest):
            return found[0]  # 5万3 is 53,000 to some and 50,003 to others
        total, lowest = total + Fraction(digits) * size, size
    return str(total) if total.denominator == 1 else found[0]


def plain_numbers(text: str) -> str:
    """A text in which numbers with Chinese, Japanese and Korean signs are digits: 5万 is 50000, 1億2000万 120000000."""
    return _WITH_SCALES.sub(_without_scales, text)
