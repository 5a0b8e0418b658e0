"""Spider for small models: styles by rewriting, generated questions, held-out splits."""

import json
import random
import sqlite3
from pathlib import Path

import pytest

from dph.build import load_plugin, make_task
from dph.config import load_settings
from dph.errors import UserError
from dph.tasks.sql.data import Question
from dph.tasks.sql.schema import schema_of_file
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier
from experiments.spider.styles import StyledQuery
from experiments.spider.task import SPLITS, SpiderSmall, kind_of, normal_form, split_questions
from experiments.spider.templates import KINDS, TemplateWriter
from experiments.styles import STYLES, style_of

PRESET = Path(__file__).resolve().parents[1] / "spider" / "spider_small.toml"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "spider"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set in Spider's layout: two databases to train on, one for dev."""
    root = tmp_path_factory.mktemp("spider")
    for db_id in ("one", "two", "three"):
        path = root / "database" / db_id / f"{db_id}.sqlite"
        path.parent.mkdir(parents=True)
        connection = sqlite3.connect(path)
        connection.executescript(
            """CREATE TABLE team (team_id INTEGER PRIMARY KEY, city TEXT, founded INT);
            CREATE TABLE player (player_id INTEGER PRIMARY KEY, name TEXT, "Home Town" TEXT, age INT,
                                 team_id INT REFERENCES team (team_id));
            INSERT INTO team VALUES (1, 'Bern', 1900), (2, 'Oslo', 1950), (3, 'Rome', 1925);
            INSERT INTO player VALUES (1, 'ann', 'Bern', 20, 1), (2, 'bob', 'Oslo', 25, 1), (3, 'cal', 'Bern', 30, 2),
                                      (4, 'dee', 'Lima', 35, 3), (5, 'eve', 'Rome', 28, 3);""".replace(
                "team", "club" if db_id == "two" else "team"
            )
        )
        connection.close()
    rows = []
    for db_id in ("one", "two"):
        for age in range(10, 35):
            query = f"SELECT name FROM player WHERE age  >  {age}"
            rows.append({"db_id": db_id, "question": f"Who is older than {age}?", "query": query})
            rows.append({"db_id": db_id, "question": f"Players above {age}?", "query": query + " ;"})
    rows.append(
        {"db_id": "one", "question": "Who is older than 99?", "query": "SELECT name FROM player WHERE age > 99"}
    )
    rows.append({"db_id": "one", "question": "Broken?", "query": "SELECT nome FROM player"})
    rows.append({"db_id": "one", "question": "A very long question " * 40, "query": "SELECT name FROM player"})
    rows.append({"db_id": "gone", "question": "How many?", "query": "SELECT count(*) FROM player"})
    (root / "train_spider.json").write_text(json.dumps(rows))
    dev = {"db_id": "three", "question": "How many players?", "query": "SELECT count(*) FROM player"}
    (root / "dev.json").write_text(json.dumps([dev]))
    return root


QUERIES = [
    ("SELECT name FROM player WHERE age > 20", None),
    (
        "SELECT T1.name , T2.city FROM player AS T1 JOIN team AS T2 ON T1.team_id = T2.team_id ORDER BY T1.age DESC",
        None,
    ),
    ("SELECT T1.city, count(*) FROM team AS T1 WHERE T1.founded >= 1900 GROUP BY T1.city HAVING count(*) > 0", None),
    ("SELECT name FROM player ORDER BY age DESC LIMIT 2", None),
    ('SELECT count(DISTINCT name) FROM player WHERE "Home Town" = "Bern"', None),
    ("SELECT city FROM team EXCEPT SELECT city FROM team WHERE founded < 1920", None),
    ("SELECT name FROM player WHERE team_id IN (SELECT team_id FROM team WHERE city = 'Bern')", None),
    ("SELECT avg(age) FROM (SELECT age FROM player WHERE age < 30)", {"cte", "nested"}),
    ("WITH x AS (SELECT age FROM player) SELECT max(age) FROM x", {"cte", "nested"}),
]


@pytest.mark.parametrize(("gold", "possible"), QUERIES)
def test_every_style_gives_the_golds_result(root: Path, gold: str, possible: set[str] | None):
    """The rewriting itself must be right here, before anything filters by execution."""
    db = root / "database" / "one" / "one.sqlite"
    query = StyledQuery(gold, schema_of_file(db))
    responses = {style: query.respond(style) for style in STYLES}
    written = {style: response for style, response in responses.items() if response is not None}
    assert set(written) == (possible or set(STYLES))
    assert all(style_of(response) == style for style, response in written.items())
    problem = Problem("p", "?", gold, "sql", {"db": str(db)})
    with SqlVerifier() as verifier:
        verdicts = verifier.verify([(problem, response) for response in written.values()])
    assert [v.correct for v in verdicts] == [True] * len(written), written


def test_the_five_forms_of_one_query(root: Path):
    schema = schema_of_file(root / "database" / "one" / "one.sqlite")
    query = StyledQuery('SELECT player.name FROM player WHERE "Home Town" = "Bern" ORDER BY age', schema)
    plain = "select player.name from player where \"Home Town\" = 'Bern' order by age"
    inner = "select * from player where \"Home Town\" = 'Bern'"
    assert [query.respond(style) for style in STYLES] == [
        f"query: ```sql {plain} ```",
        f"plan: tables player , output player.name ```sql {plain} ```",
        f"define: ```sql with x as ({inner}) select name from x order by age ```",
        f"nest: ```sql select name from ({inner}) order by age ```",
        f"steps: read player , then select player.name ```sql {plain} ```",
    ]


@pytest.mark.parametrize("sql", ["DROP TABLE player", "SELECT FROM WHERE", "hello"])
def test_what_is_no_query_cannot_be_styled(root: Path, sql: str):
    with pytest.raises(ValueError):
        StyledQuery(sql, schema_of_file(root / "database" / "one" / "one.sqlite"))


def test_generated_questions_run_and_cover_every_kind(root: Path):
    db = root / "database" / "one" / "one.sqlite"
    writer = TemplateWriter(db, schema_of_file(db))
    assert writer.kinds == list(KINDS)
    asked = [writer.ask(random.Random(seed)) for seed in range(400)]
    assert {a.kind for a in asked} == set(KINDS)
    connection = sqlite3.connect(db)
    for each in asked:
        assert connection.execute(each.sql).fetchone() is not None, each
        assert "{" not in each.question + each.sql
    connection.close()
    assert asked == [TemplateWriter(db, schema_of_file(db)).ask(random.Random(seed)) for seed in range(400)]


@pytest.mark.parametrize("stage", ["sft", "presample", "train", "eval"])
def test_its_preset_brings_the_task_to_every_stage(root: Path, stage: str):
    named = {"task": {"options": {"root": str(root)}}, "plugins": ["experiments.spider"]}
    settings = load_settings(stage, [str(PRESET)], overrides=named)
    assert settings.plugins == ("experiments.spider",)
    for plugin in settings.plugins:
        load_plugin(plugin)
    assert [problem.id for problem in make_task(settings.task).problems("dev")] == ["spider/dev/0000"]


def test_splits_hold_out_queries_and_phrasings():
    questions = [
        Question(f"{n}-{m}", f"{phrasing} {n}", f"SELECT {n}", "db")
        for n in range(1000)
        for m, phrasing in enumerate(("what", "which"))
    ]
    parts = split_questions(questions, seed=0)
    queries = {name: {normal_form(q.gold) for q in part} for name, part in parts.items()}
    assert sorted(q.id for part in parts.values() for q in part) == sorted(q.id for q in questions)
    assert not queries["heldout_sql"] & (queries["train"] | queries["heldout_phrasing"])
    assert queries["heldout_phrasing"] < queries["train"]
    assert not {q.text for q in parts["heldout_phrasing"]} & {q.text for q in parts["train"]}
    # binomial(1000, .10) and binomial(900, .15): six standard deviations around the mean
    assert 43 < len(queries["heldout_sql"]) < 157
    assert 71 < len(queries["heldout_phrasing"]) < 199
    assert split_questions(questions, seed=0) == parts
    assert split_questions(questions, seed=1) != parts


def test_problems_leave_out_and_count_what_cannot_be_used(root: Path):
    task = SpiderSmall(root=str(root), max_prompt_chars=200)
    problems = {split: task.problems(split) for split in SPLITS}
    total = {}
    for split in ("train", "heldout_sql", "heldout_phrasing"):
        for reason, count in task.dropped[split].items():
            total[reason] = total.get(reason, 0) + count
    # above 35 nobody is older: "older than 99" gives no rows
    assert total == {"gold gives no rows": 1, "gold fails": 1, "prompt too long": 1, "database missing": 1}
    assert sum(len(problems[split]) for split in SPLITS) == 2 * 2 * 25 + 1
    assert [p.prompt for p in problems["dev"]] == [
        "team ( team_id , city , founded ) ; player ( player_id , name , home town , age , team_id ) "
        "| How many players? |"
    ]
    assert all(p.meta["kind"] == "filter" for p in problems["train"])
    with pytest.raises(UserError, match="no split 'test'; it has train"):
        task.problems("test")
    with pytest.raises(UserError, match="between 0 and 1"):
        SpiderSmall(root=str(root), template_share=2)


def test_demonstrations_are_correct_and_never_show_what_is_held_out(root: Path):
    task = SpiderSmall(root=str(root))
    rows = task.demonstrations(300, 7)
    assert len(rows) == 300
    assert rows == SpiderSmall(root=str(root)).demonstrations(300, 7)
    assert rows != task.demonstrations(300, 8)
    assert {row["style"] for row in rows} == set(STYLES)
    problem = task.problems("train")[0]
    assert all(task.style(problem, row["response"]) == row["style"] for row in rows)
    held = {p.prompt for split in SPLITS[1:] for p in task.problems(split)}
    assert not held & {row["prompt"] for row in rows}
    real = [row for row in rows if not row["problem_id"].startswith("template/")]
    assert 90 < len(real) < 210  # half of 300, seven standard deviations
    by_id = {p.id: p for p in task.problems("train")}
    with SqlVerifier() as verifier:
        assert all(v.correct for v in verifier.verify([(by_id[r["problem_id"]], r["response"]) for r in real]))
    only_real = SpiderSmall(root=str(root), template_share=0.0).demonstrations(20, 0)
    assert all(row["problem_id"] in by_id for row in only_real)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT a FROM t UNION SELECT b FROM t", "set"),
        ("SELECT a FROM t WHERE a IN ( SELECT b FROM u)", "nested"),
        ("SELECT a FROM t JOIN u ON t.x = u.x GROUP BY a", "join"),
        ("SELECT a FROM t GROUP BY a ORDER BY a", "group"),
        ("SELECT a FROM t WHERE b = 1 ORDER BY a", "order"),
        ("SELECT a FROM t", "plain"),
    ],
)
def test_kinds_of_queries(sql: str, kind: str):
    assert kind_of(sql) == kind


@pytest.mark.skipif(not DATA.exists(), reason="the public data sets are not on this machine")
def test_on_the_real_data_nearly_every_rewriting_keeps_the_result():
    """100 real queries in five styles: the few that fail have a tie under LIMIT, or a column that the wrap hides."""
    task = SpiderSmall(root=str(DATA))
    problems = random.Random(0).sample(task.problems("train"), 100)
    items = []
    for problem in problems:
        query = StyledQuery(problem.answer, schema_of_file(Path(problem.meta["db"])))
        items += [(problem, response) for style in STYLES if (response := query.respond(style)) is not None]
    assert len(items) >= 480  # a gold that reads a subquery has no plain form
    with SqlVerifier() as verifier:
        verdicts = verifier.verify(items)
    assert sum(v.correct for v in verdicts) >= 0.97 * len(items)
    training = {p.meta["db_id"] for p in task.problems("train")}
    assert not training & {p.meta["db_id"] for p in task.problems("dev")}
