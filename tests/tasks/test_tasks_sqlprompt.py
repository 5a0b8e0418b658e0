"""Prompts for SQL: schemas from files and entries, values that a question mentions, equality with published prompts.
The stemmer against NLTK's.

STEMS were computed by `PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)` of NLTK 3.10.4 (`pip install nltk`):
the algorithm as published, with its author's two later changes (the endings "bli" and "logi") and with words of
one or two letters unchanged, as in Lucene. The words are Porter's own examples, common English words for every
ending of every step, and some short or irregular ones.
"""

import json
import sqlite3
from pathlib import Path

import pytest

from dph.tasks import load_task
from dph.tasks.sql.prompt import compact_schema, make_prompt, omnisql_schema
from dph.tasks.sql.schema import Column, ForeignKey, Schema, Table, schema_of_entry, schema_of_file
from dph.tasks.sql.value_search import ValueIndex, analysed, queries, stems, tokenized

DDL = """CREATE TABLE Club (Club_ID INTEGER PRIMARY KEY, "Home Town" TEXT, Year INT);
CREATE TABLE member (id INT, club_id INT REFERENCES Club (Club_ID), note TEXT, PRIMARY KEY (id, club_id));
INSERT INTO Club VALUES (1, 'Bern', 1900), (2, 'Bern', 1901), (3, 'Oslo', NULL);
INSERT INTO member VALUES (7, 1, ''), (8, 3, 'a rather long note of more than forty characters');"""


def make_db(path: Path, ddl: str = DDL) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(ddl)
    connection.close()
    return path


def towns(path: Path, *names: str) -> ValueIndex:
    make_db(path, "CREATE TABLE town (name TEXT);")
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO town VALUES (?)", [(name,) for name in names])
    connection.close()
    return ValueIndex(path)


# --- the schema ------------------------------------------------------------------------------------------------------


def test_prompts_from_a_database_file(tmp_path: Path):
    db = make_db(tmp_path / "clubs.sqlite")
    schema = schema_of_file(db)
    assert compact_schema(schema) == "club ( club_id , home town , year ) ; member ( id , club_id , note )"
    prompt = make_prompt("compact", schema, db, "How many\n clubs?", "a hint")
    assert prompt.endswith("note ) | a hint How many clubs? |")
    shown = make_prompt("omnisql", schema, db, "How many clubs?", "a hint")
    expected = """Database Schema:
CREATE TABLE Club (
    Club_ID integer, -- example: [1, 2]
    `Home Town` text, -- example: ['Bern', 'Oslo']
    `Year` int, -- example: [1900, 1901]
    PRIMARY KEY (Club_ID)
);

CREATE TABLE member (
    id int, -- example: [7, 8]
    club_id int, -- example: [1, 3]
    note text, -- example: ['a rather long note of more than forty ch']
    PRIMARY KEY (id, club_id),
    CONSTRAINT fk_member_club_id FOREIGN KEY (club_id) REFERENCES Club (Club_ID)
);
This schema"""
    assert expected in shown
    assert "\nQuestion:\na hint\nHow many clubs?\n" in shown


def test_a_tables_json_entry_says_the_same_as_the_file(tmp_path: Path):
    db = make_db(tmp_path / "clubs.sqlite")
    entry = {
        "table_names_original": ["Club", "member"],
        "column_names_original": [[-1, "*"], [0, "Club_ID"], [0, "Home Town"], [0, "Year"], [1, "id"], [1, "club_id"],
                                  [1, "note"]],
        "column_names": [[-1, "*"], [0, "club id"], [0, "home town"], [0, "year"], [1, "id"], [1, "club id"],
                         [1, "note"]],
        "column_types": ["text", "integer", "text", "int", "int", "int", "text"],
        "primary_keys": [1, [4, 5]],
        "foreign_keys": [[5, 1]],
    }  # fmt: skip
    assert schema_of_entry(entry) == schema_of_file(db)


def test_examples_are_mentioned_values_then_the_first_two_at_most_six(tmp_path: Path):
    db = make_db(tmp_path / "t.sqlite", "CREATE TABLE t (x TEXT, y); INSERT INTO t VALUES ('', 1), ('a', 1), ('b', 2);")
    schema = schema_of_file(db)
    mentioned = {("t", "x"): ["b"], ("t", "y"): ["q", "r", "s", "t", "u", "v"]}
    assert omnisql_schema(schema, db, mentioned) == (
        "CREATE TABLE t (\n    x text, -- example: ['b', 'a']\n    y, -- example: ['q', 'r', 's', 't', 'u', 'v']\n);"
    )
    assert "x text, -- example: ['a', 'b']" in omnisql_schema(schema, db)


def test_the_details_of_published_schemas(tmp_path: Path):
    """A key that is listed twice is printed once, after the columns. Reserved words and unusual names have backticks. A
    title is printed only if it differs from the name. The last line has no comma if it has no comment."""
    db = make_db(tmp_path / "t.sqlite", "CREATE TABLE other (x)")
    columns = (Column("year", "text", "year"), Column("ISBN-13", "text", "ISBN"), Column("a_b", "number", "a b"))
    key = ForeignKey("My t", "a_b", "other", "x")
    table = Table("My t", columns, ("a_b", "year"))
    assert omnisql_schema(Schema((table,), (key, ForeignKey("My t", "year", "user", "x"), key)), db) == (
        "CREATE TABLE `My t` (\n    `year` text,\n    `ISBN-13` text, -- ISBN\n    a_b number,\n"
        "    PRIMARY KEY (`year`, a_b),\n"
        "    CONSTRAINT fk_my_t_year FOREIGN KEY (`year`) REFERENCES `user` (x),\n"
        "    CONSTRAINT fk_my_t_a_b FOREIGN KEY (a_b) REFERENCES other (x)\n);"
    )


# --- values that the question mentions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [  # examples of Porter's paper, by its steps
        ("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"),
        ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop"), ("falling", "fall"), ("hissing", "hiss"),
        ("failing", "fail"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"), ("relational", "relat"),
        ("conditional", "condit"), ("rational", "ration"), ("digitizer", "digit"), ("radically", "radic"),
        ("vietnamization", "vietnam"), ("operator", "oper"), ("sensibiliti", "sensibl"), ("triplicate", "triplic"),
        ("hopeful", "hope"), ("goodness", "good"), ("allowance", "allow"), ("adoption", "adopt"), ("probate", "probat"),
        ("rate", "rate"), ("cease", "ceas"), ("controll", "control"), ("roll", "roll"), ("generalizations", "gener"),
        ("is", "is"),
    ],
)  # fmt: skip
def test_stems(word: str, expected: str):
    assert stems([word]).get(word, word) == expected


def test_analysis_follows_words_not_spaces():
    assert analysed(["The Joneses' cats, and Brazil’s U.S.A. 3,000 low-priced A_1"]) == [[
        "jones", "cat", "brazil", "u.s.a", "3,000", "low", "price", "a_1"
    ]]  # fmt: skip


def test_marks_are_words_of_their_own():
    assert tokenized('Who isn\'t in "Bern"? Say so, at 3.5 (or don\'t).') == [
        "Who", "is", "n't", "in", '"', "Bern", '"', "?", "Say", "so", ",", "at", "3.5", "(", "or", "do", "n't", ")", "."
    ]  # fmt: skip
    assert queries("a b a") == ["a", "b", "a b", "b a", "a b a"]
    assert len(queries(" ".join(map(str, range(10))))) == 10 + 9 + 8 + 7 + 6 + 5 + 4 + 3 + 1


def test_values_must_stand_in_the_question_almost_wholly(tmp_path: Path):
    index = towns(tmp_path / "a", "New York", "York ", "Old York", "Yorkshire", "12", "x" * 41, "BERN", "")
    # "york " stands whole and is longer than "bern"; of "New York", "york" alone would be half
    assert index.mentioned("Is York in Bern?") == {("town", "name"): ["York ", "BERN"]}
    assert index.mentioned("is 12 " + "x" * 41) == {}
    # 6 of 7 letters are 85.7 %; 5 of 6 are 83.3 %
    found = towns(tmp_path / "b", "letters", "better").mentioned("a letter, a bette")
    assert found == {("town", "name"): ["letters"]}


def test_a_word_gives_at_most_ten_values_ties_by_name(tmp_path: Path):
    index = towns(tmp_path / "a", *(f"x {i}b" for i in range(12)))
    # equal scores: the numbers of the values in the order of text, 0, 1, 10, 11, 2 …
    assert [value.text for value in index.search(["x"])] == [f"x {i}b" for i in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7)]
    assert index.search(["nothing", "of", "the", "kind"]) == []


def test_scores_are_bm25(tmp_path: Path):
    index = towns(tmp_path / "a", "red", "red red blue green", "blue", "grey one two")
    # Four values of mean length 9/4. "red" and "blue" occur in two each, so idf is the same, and what counts is
    # tf/(tf + 0.9(0.6 + 0.4 length/2.25)).
    # red: 1/(1 + 0.7) = 0.588; red red blue green: 2/(2 + 1.18) = 0.629 for red, 1/(1 + 1.18) = 0.459 for blue
    assert [value.text for value in index.search(["red"])] == ["red red blue green", "red"]
    assert [value.text for value in index.search(["blue"])] == ["blue", "red red blue green"]
    assert [value.text for value in index.search(["blue", "blue", "red"])] == ["red red blue green", "blue", "red"]


# --- the published prompts -------------------------------------------------------------------------------------------


def test_prompts_equal_the_published_ones_byte_for_byte(shared_data: Path):
    """On all 972 questions whose database is there (62 of the 1,034 ask wta_1)."""
    spider = shared_data / "spider"
    published = [json.loads(line) for line in (spider / "spider_dev_dphrl.jsonl").read_text().splitlines()]
    problems = load_task("spider", root=str(spider), skip_missing=True).problems("dev")
    by_id = {f"spider/dev/{row['id']:04d}": row for row in published}
    assert len(problems) == 972
    assert {row["reward_model"]["ground_truth"]["db_id"] for id, row in by_id.items()} - {
        f"{p.meta['db_id']}/{p.meta['db_id']}.sqlite" for p in problems
    } == {"wta_1/wta_1.sqlite"}
    assert [p.id for p in problems if by_id[p.id]["prompt"][0]["content"] != p.prompt] == []
    assert all(by_id[p.id]["reward_model"]["ground_truth"]["gold_sql"] == p.answer for p in problems)


STEMS = """
a:a access:access action:action activate:activ active:activ actually:actual added:ad additional:addit
adjustable:adjust adjustment:adjust adoption:adopt affiliates:affili agree:agre agreed:agre agreeing:agre
airliner:airlin alignment:align all:all allowance:allow alternative:altern ambiguous:ambigu analogousli:analog
analogy:analog analytical:analyt angulariti:angular annotations:annot another:anoth any:ani apologies:apolog
applicable:applic application:applic appropriate:appropri are:ar argument:argument array:arrai as:as assembled:assembl
assemblies:assembl assignment:assign associated:associ attachment:attach authenticate:authent authenticated:authent
authenticating:authent authentication:authent authenticator:authent authorizer:author automatically:automat
availability:avail available:avail awareness:awar based:base basic:basic being:be betweenness:between bled:bled
bleed:bleed bowdlerize:bowdler bowed:bow boxed:box bus:bu buses:buse business:busi by:by calculated:calcul
calculating:calcul call:call callable:callabl calling:call callousness:callous cancellable:cancel cancellation:cancel
cancellations:cancel cancelling:cancel canonical:canon canonicalization:canonic canonicalize:canonic
capabilities:capabl capitalization:capit capitalize:capit capitalized:capit careful:care caress:caress caresses:caress
cats:cat cease:ceas certificate:certif characters:charact class:class classes:class collections:collect
comment:comment communicate:commun communicating:commun communism:commun commutative:commut compatibility:compat
compatible:compat completely:complet completeness:complet compliance:complianc computational:comput condition:condit
conditional:condit conditioned:condit conditioning:condit configuration:configur conflated:conflat conformabli:conform
conservative:conserv considered:consid constant:constant contiguous:contigu continuous:continu controll:control
controller:control controlling:control convenience:conveni convergence:converg correctness:correct create:creat
created:creat creating:creat creation:creation creator:creator cried:cri cry:cry crying:cry cumulative:cumul
current:current currently:current customization:custom cyrillic:cyril date:date decisiveness:decis defensible:defens
defined:defin definiteness:definit definition:definit dependencies:depend dependent:depend deprecated:deprec
derivative:deriv description:descript deserialization:deseri deserialize:deseri deserializer:deseri
deserializing:deseri development:develop diagonalization:diagon difference:differ different:differ differentli:differ
digitizer:digit dimension:dimens directories:directori disabled:disabl disabling:disabl disagreement:disagr
displacement:displac distance:distanc document:document documentation:document duplicate:duplic during:dure dying:dy
educational:educ effective:effect effectiveness:effect electrical:electr electriciti:electr element:element else:els
enabled:enabl enabling:enabl endianness:endian enforcement:enforc enhancement:enhanc entries:entri environment:environ
equal:equal equality:equal equation:equat equivalent:equival evaluate:evalu evaluated:evalu evaluating:evalu
exceed:exce exception:except expensive:expens expression:express extension:extens eye:ey eyes:ey factorization:factor
failing:fail faithfulness:faith falling:fall feed:feed feudalism:feudal filing:file filling:fill finalize:final
finalizer:final finally:final finiteness:finit five:five fixing:fix fizzed:fizz fleeing:flee flexible:flexibl
flexibly:flexibl floating:float following:follow forceful:forc formaliti:formal formalize:formal formative:form
fraction:fraction fractional:fraction free:free freed:freed frequencies:frequenc frequency:frequenc function:function
functional:function functionalities:function functionality:function fuzzing:fuzz gas:ga generalization:gener
generalizations:gener generalize:gener generalized:gener generally:gener generate:gener generated:gener
generating:gener generator:gener generic:gener geology:geologi give:give goodness:good gravitational:gravit
guaranteed:guarante gyroscopic:gyroscop happy:happi has:ha have:have having:have helpful:help hence:henc hers:her
hesitanci:hesit hissing:hiss homogeneous:homogen homologou:homolog homologous:homolog homomorphism:homomorph
hopeful:hope hopefulness:hope hopping:hop identical:ident identities:ident identity:ident immediately:immedi
implement:implement implementation:implement important:import impossible:imposs improvement:improv
incompatibilities:incompat incompatible:incompat incredibly:incred indicate:indic indicating:indic inequalities:inequ
infeasibilities:infeas inference:infer infinities:infin information:inform informational:inform initialization:initi
initializations:initi initialize:initi initialized:initi initializer:initi initializers:initi initializing:initi
inning:in insensitive:insensit install:instal installable:instal installation:instal installations:instal
installed:instal installer:instal installing:instal instance:instanc integer:integ integers:integ intentional:intent
internal:intern internally:intern international:intern irrational:irrat irritant:irrit is:is isomorphism:isomorph
iterable:iter iteration:iter iterative:iter iterator:iter key:kei less:less limitations:limit live:live located:locat
location:locat locator:locat logic:logic logical:logic lying:ly management:manag mapping:map mathematical:mathemat
may:mai meant:meant measurement:measur mechanism:mechan minimization:minim minimize:minim minimizer:minim
minimizing:minim missing:miss mission:mission modification:modif modifications:modif monkey:monkei morphism:morphism
motoring:motor multiplication:multipl multiplicative:multipl multiplicities:multipl mutator:mutat my:my naive:naiv
name:name named:name native:nativ need:need negative:neg news:new nonnegative:nonneg normalization:normal
normalize:normal normalized:normal normalizing:normal notation:notat noticeable:notic number:number numeric:numer
numerical:numer numerically:numer obvious:obviou only:onli operating:oper operation:oper operations:oper operator:oper
operators:oper optimization:optim optimizations:optim optimize:optim optimized:optim optimizer:optim option:option
optional:option order:order organizational:organiz original:origin orthogonalize:orthogon oscillate:oscil
oscillating:oscil oscillation:oscil oscillator:oscil oscillators:oscil other:other overall:overal owed:ow
parameter:paramet parameters:paramet partitioned:partit partitioning:partit pass:pass passing:pass performance:perform
personalization:person physics:physic plastered:plaster played:plai ponies:poni position:posit positional:posit
positive:posit possible:possibl possibly:possibl precedence:preced precision:precis predicate:predic
predication:predic presence:presenc present:present presentational:present previous:previou prism:prism private:privat
probabilities:probabl probably:probabl probate:probat process:process processing:process properties:properti
proportional:proport public:public purposeful:purpos quantization:quantiz radicalli:radic raise:rais raises:rais
randomness:random rate:rate rating:rate rational:ration real:real realization:realiz realize:realiz realized:realiz
realizing:realiz receive:receiv recognized:recogn recursive:recurs reference:refer references:refer refinement:refin
related:relat relational:relat relative:rel relatively:rel relevant:relev replacement:replac replicate:replic
represent:repres representation:represent representative:repres representatives:repres represented:repres
representing:repres requirement:requir resize:resiz resized:resiz resizing:resiz respectively:respect
responsibilities:respons responsible:respons returned:return revival:reviv ring:ring ringed:ring roll:roll running:run
section:section seed:seed sees:see segment:segment sensibiliti:sensibl sensitiviti:sensit separate:separ
sequence:sequenc serialization:serial serialize:serial serializer:serial serializing:serial session:session
setting:set settings:set sibling:sibl significant:signific simplification:simplif simultaneous:simultan sing:sing
singing:sing size:size sized:size sizing:size skewness:skew sky:sky slated:slate snowing:snow sophisticated:sophist
special:special specific:specif specifically:specif specification:specif specifications:specif speed:speed spying:spy
state:state stated:state statement:statement stating:state station:station stored:store string:string
subclasses:subclass succeed:succe succeeding:succeed successful:success syzygy:syzygi table:tabl tanned:tan tax:tax
taxed:tax technology:technolog tension:tension terminology:terminolog the:the theoretical:theoret they:thei
thing:thing this:thi thou:thou ties:ti tokenize:token tokenizer:token tolerance:toler topology:topolog toy:toi
traditional:tradit translational:translat translator:translat trees:tree triplicate:triplic troubled:troubl try:try
typical:typic typically:typic typing:type undocumented:undocu uninitialized:uniniti uniqueness:uniqu unless:unless
update:updat updating:updat used:us useful:us usefulness:us uses:us using:us utilities:util valenci:valenc
validating:valid validation:valid values:valu variable:variabl various:variou verification:verif version:version
vertical:vertic vietnamization:vietnam vileli:vile visible:visibl want:want warnings:warn way:wai wedding:wed
will:will witnesses:wit wrapped:wrap you:you yoyo:yoyo
"""


def test_stems_as_nltk_finds_them():
    expected = {word: found for word, _, found in (pair.partition(":") for pair in STEMS.split())}
    assert len(expected) == 581
    found = stems(expected)
    assert {word: found.get(word, word) for word in expected} == expected
