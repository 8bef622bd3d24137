"""Whole pipelines from files, Python and YAML, and what is said of those that do not fit together."""

from __future__ import annotations

import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines import PipelineError
from tidelog.pipelines.definition.loading import load
from tidelog.pipelines.definition.sinks import FilesWrite, TopicWrite
from tidelog.pipelines.definition.sources import TopicRead
from tidelog.pipelines.definition.sql import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.pipelines.definition.pipeline import Pipeline

SALES = """
    from tidelog.pipelines import Settings, json, read, view, write

    settings = Settings(trigger="2 seconds", bootstrap="b:9092")
    orders = read.topic("orders", value=json("id long, product string"))
    products = read.table("products", key="product", value=json("name string"))

    @view
    def paid(orders):
        return orders

    @write.topic("sales", key="product")
    @write.parquet("/data/sales")
    def sales(paid, products, spark):
        return paid

    again = sales
"""

SALES_YAML = """
    name: sales
    bootstrap: b:9092
    trigger: 2 seconds
    sources:
      orders: {topic: [orders, more], value: {format: json, schema: {id: long, at: timestamp}}, watermark: {at: 1 hour}}
      products: {table: products, key: product, value: json}
      old: {pattern: "old-.*", value: {format: json, schema: id long}, options: {failOnDataLoss: false}}
      ticks: {rate: 5}
      customers: {jdbc: "jdbc:derby:x", table: customers}
    views:
      paid: SELECT * FROM orders WHERE paid -- FROM nowhere
    sinks:
      sales:
        sql: SELECT p.* FROM paid p JOIN products USING (product)
        topic: sales
        key: product
      archive: {from: paid, parquet: /data/paid, partition_by: [day]}
      raw: {from: orders, console: }
      others: {sql: "SELECT * FROM old, ticks, customers", files: /x, format: json}
"""


@pytest.fixture(autouse=True)
def _modules_as_before(tmp_path: Path) -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def loaded(tmp_path: Path, text: str, name: str) -> Pipeline:
    file = tmp_path / name
    file.write_text(dedent(text), encoding="utf-8")
    return load(file)


def test_a_python_module(tmp_path: Path) -> None:
    found = loaded(tmp_path, SALES, "sales.py")
    assert found.name == "sales"
    assert found.settings.trigger == "2 seconds"
    assert list(found.sources) == ["orders", "products"]
    assert list(found.views) == ["paid", "sales"], "a second name for a view is no second view"
    assert [(query.name, query.sink.kind) for query in found.queries] == [
        ("sales", "parquet"),
        ("sales-topic", "topic"),
    ]
    assert found.needs("sales") == ["orders", "paid", "products", "sales"]
    assert found.unused() == []
    assert found.dead_letter_topic == "sales.dead-letters"
    assert [found.dead_letter_query(name) for name, _ in found.decoded()] == [
        "dead-letters.orders",
        "dead-letters.products",
    ]


def test_a_module_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "rules_of_sales.py").write_text("TOPIC = 'orders'\n", encoding="utf-8")
    text = """
        from rules_of_sales import TOPIC
        from tidelog.pipelines import read, write
        orders = read.topic(TOPIC)
        @write.console()
        def shown(orders): return orders
    """
    reads = loaded(tmp_path, text, "beside.py").sources["orders"].reads
    assert isinstance(reads, TopicRead)
    assert reads.topics == ("orders",)


def test_yaml(tmp_path: Path) -> None:
    found = loaded(tmp_path, SALES_YAML, "whatever.yaml")
    assert found.name == "sales"
    orders = found.sources["orders"].reads
    assert isinstance(orders, TopicRead)
    assert orders.topics == ("orders", "more")
    assert orders.value.schema == "`id` long, `at` timestamp"
    old = found.sources["old"].reads
    assert isinstance(old, TopicRead)
    assert (old.pattern, old.options) == ("old-.*", {"failOnDataLoss": "false"})
    assert {query.name: query.sink.kind for query in found.queries} == {
        "sales": "topic",
        "archive": "parquet",
        "raw": "console",
        "others": "files",
    }
    by_name = {query.name: query for query in found.queries}
    assert found.needs(by_name["sales"].view)[:3] == ["orders", "paid", "products"]
    assert found.needs(by_name["raw"].view)[0] == "orders"
    writes = by_name["archive"].sink.writes
    assert isinstance(writes, FilesWrite)
    assert writes.partition_by == ("day",)
    assert isinstance(by_name["sales"].sink.writes, TopicWrite)
    assert found.streams(by_name["sales"])


PYTHON_HEAD = "from tidelog.pipelines import json, read, view, write\norders = read.topic('orders')\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@write.console()\ndef shown(order): return order", "shown takes 'order'.*did you mean 'orders'"),
        ("", "nothing is written anywhere"),
        ("@write.console()\ndef a(b): ...\n@view\ndef b(a): ...", "take each other: a <- b <- a"),
        ("@write.console()\n@write.console()\ndef a(orders): ...\n@write.console()\ndef b(orders): ...", None),
        ("@write.console()\n@write.console()\n@write.console()\ndef a(orders): ...", "two sinks are named 'a-console'"),
        ("@write.console(name='dead-letters.orders')\ndef a(orders): ...", "named as dead letters are"),
        ("größe = read.topic('a', value='json')\n@write.console()\ndef a(größe): ...", "not 'dead-letters.größe'"),
        ("x = read.topic('a', value='jason')", "line 3: value: there is no format 'jason'"),
        ("x = 1 / 0", "line 3: ZeroDivisionError"),
        ("def (", "line 3"),
        ("import no_such_module_here", "line 3: ModuleNotFoundError"),
        ("spark = read.rate()\n@write.console()\ndef a(spark): ...", "the session's name"),
    ],
)
def test_what_is_wrong_with_a_module(tmp_path: Path, text: str, told: str | None) -> None:
    if told is None:
        loaded(tmp_path, PYTHON_HEAD + text, "some.py")
        return
    with pytest.raises(PipelineError, match=told) as refused:
        loaded(tmp_path, PYTHON_HEAD + text, "some.py")
    assert str(refused.value).startswith(f"{tmp_path / 'some.py'}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "a pipeline has sources, views, sinks"),
        ("sources: {a: [}", "line 1: this is not YAML"),
        ("sorces: {}", "did you mean 'sources'"),
        ("sources: []\nsinks: {}", None),
        ("sources: {a: {topic: a}}", "nothing is written"),
        ("sources: {a: 5}", "source a: it is a mapping"),
        ("sources: {a: {}}", "source a: it needs exactly one of topic"),
        ("sources: {a: {topic: a, rate: 1}}", "source a: it needs exactly one of"),
        ("sources: {a: {topic: a, watermrk: 1}}", "source a: there is no 'watermrk': did you mean 'watermark'"),
        ("sources: {a: {table: a, key: k}}", "source a: .*value"),
        ("sources: {a-b: {topic: a}}", "SQL needs names of letters"),
        ("sources: {a: {topic: a}}\nviews: {v: 5}", "view v: it is SQL"),
        ("sources: {abc: {topic: a}}\nviews: {v: SELECT 1 FROM abd}", "view v: .*did you mean 'abc'"),
        ("sources: {abc: {topic: a}}\nviews: {v: SELECT 1}", "it reads none of the sources"),
        ("sources: {a: {topic: a}}\nsinks: {s: {console: }}", "come from `sql`"),
        ("sources: {a: {topic: a}}\nsinks: {s: {from: b, console: }}", "no source or view 'b'"),
        ("sources: {a: {topic: a}}\nsinks: {s: {from: a}}", "sink s: it needs exactly one of topic"),
        ("sources: {a: {topic: a}}\nsinks: {s: {from: a, topic: t, keyy: x}}", "sink s: there is no 'keyy'"),
        ("sources: {a: {topic: a}}\nviews: {s: SELECT * FROM a}\nsinks: {s: {from: a, console: }}", "both a view and"),
        ("sources: {a: {topic: a}}\nviews: {a: SELECT * FROM a}", "both a source and a view"),
        ("trigger: often\nsources: {a: {topic: a}}\nsinks: {s: {from: a, console: }}", "the trigger is 'often'"),
        ("kafka: 5\nsources: {a: {topic: a}}\nsinks: {s: {from: a, console: }}", "settings"),
    ],
)
def test_what_is_wrong_with_yaml(tmp_path: Path, text: str, told: str | None) -> None:
    with pytest.raises(PipelineError, match=told) as refused:
        loaded(tmp_path, text, "some.yaml")
    assert "\n" not in str(refused.value)


def test_files_of_no_form(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no file"):
        load(tmp_path / "none.py")
    with pytest.raises(PipelineError, match=r"a Python module \(.py\) or YAML"):
        loaded(tmp_path, "x", "pipeline.toml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff")
    with pytest.raises(PipelineError, match="UTF-8"):
        load(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("sql", "inputs"),
    [
        ("SELECT * FROM orders", ("orders",)),
        ("select 'from nowhere' from ORDERS o join `products` using (id)", ("orders", "products")),
        ("WITH big AS (SELECT * FROM orders) SELECT * FROM big", ("orders",)),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM orders) SELECT * FROM a, b", ("orders",)),
        ("SELECT extract(day FROM at), trim(both 'x' FROM name) FROM orders", ("orders",)),
        ("SELECT * FROM orders, range(10)", ("orders",)),
        ("SELECT * FROM orders JOIN catalog.db.t ON true", ("orders",)),
        ("SELECT * FROM (SELECT * FROM orders) /* FROM x */", ("orders",)),
        ("SELECT * FROM STREAM(orders)", ("orders",)),
        ("SELECT * FROM orders LATERAL VIEW explode(items) AS item", ("orders",)),
        ("SELECT max(total) FROM orders", ("orders",)),
        ("SELECT products, unused FROM orders", ("orders",)),
        ("SELECT orders.id AS products FROM orders AS unused", ("orders",)),
        ("SELECT * FROM orders, products AS p, range(3)", ("orders", "products")),
        ("SELECT * FROM orders o,products WHERE o.a IN (1, unused)", ("orders", "products")),
        ("SELECT * FROM orders ORDER BY a, unused", ("orders",)),
        ("SELECT * FROM orders JOIN products ON a = b, unused", ("orders", "products", "unused")),
        ("SELECT * FROM orders JOIN products USING (id, unused)", ("orders", "products")),
        ("SELECT * FROM (orders JOIN (SELECT * FROM products) p), unused", ("orders", "products", "unused")),
        ("SELECT * FROM ((SELECT unused FROM orders)) x", ("orders",)),
        (
            "SELECT (SELECT max(unused) FROM products) FROM orders WHERE EXISTS (SELECT 1 FROM unused)",
            ("products", "orders", "unused"),
        ),
        ("SELECT * FROM orders WHERE id IN (SELECT id FROM products)", ("orders", "products")),
        ("SELECT * FROM orders UNION ALL SELECT unused FROM products", ("orders", "products")),
        ("SELECT * FROM orders WHERE a IS DISTINCT FROM unused", ("orders",)),
        ("SELECT * FROM orders WHERE a IS NOT DISTINCT FROM b", ("orders",)),
        ("SELECT extract(day FROM (SELECT max(at) FROM products)) FROM orders", ("products", "orders")),
        ("SELECT 'it''s FROM x', \"FROM unused\", r'\\' FROM orders -- , unused", ("orders",)),
        ("SELECT `from`, t.join FROM `orders` t", ("orders",)),
        ("SELECT `a``b FROM x` FROM orders", ("orders",)),
        ("SELECT /*+ BROADCAST(products) */ * FROM orders", ("orders",)),
        ("SELECT * FROM orders LATERAL VIEW explode(items) t AS unused, products", ("orders",)),
        ("SELECT * FROM orders, LATERAL (SELECT * FROM products)", ("orders", "products")),
        ("SELECT * FROM orders JOIN LATERAL explode(items)", ("orders",)),
        ("SELECT * FROM orders WINDOW w AS (ORDER BY a), unused AS (ORDER BY b)", ("orders",)),
        ("SELECT * FROM VALUES (1, 2), (3, 4) AS unused(a, b) JOIN orders", ("orders",)),
        ("FROM orders SELECT id, unused", ("orders",)),
        ("FROM orders |> JOIN products USING (id) |> SELECT a, unused", ("orders", "products")),
        ("TABLE orders", ("orders",)),
        ("SELECT * FROM orders UNION TABLE products", ("orders", "products")),
        ("SELECT * FROM f(rows => TABLE(orders), unused => 5)", ("orders",)),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ("orders",)),
        ("WITH unused AS (SELECT * FROM orders) SELECT * FROM unused", ("orders",)),
        ("WITH a(x, y) AS (SELECT 1, 2),b AS (SELECT * FROM a) SELECT * FROM b JOIN orders", ("orders",)),
        ("WITH RECURSIVE n AS (SELECT 1 UNION ALL SELECT * FROM n) SELECT * FROM n, orders", ("orders",)),
        ("SELECT * FROM (WITH unused AS (SELECT * FROM orders) SELECT * FROM unused), unused", ("orders", "unused")),
        ("WITH `a` AS (SELECT * FROM orders) SELECT * FROM A", ("orders",)),
        ("SELECT a FROM orders GROUP BY a WITH ROLLUP", ("orders",)),
        ("SELECT * FROM catalog.db.t, orders", ("orders",)),
        ("SELECT * FROM orders TABLESAMPLE (5 ROWS), products", ("orders", "products")),
        ("SELECT * FROM STREAM(orders) o, products", ("orders", "products")),
        ("SELECT * FROM orders PIVOT (sum(a) FOR b IN (1, 2)), products", ("orders", "products")),
    ],
)
def test_what_sql_reads(sql: str, inputs: tuple[str, ...]) -> None:
    assert inputs_of(sql, ["products", "orders", "unused"], "it") == inputs


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM orders, product", "no source or view 'product': did you mean 'products'"),
        ("SELECT * FROM orders JOIN (SELECT * FROM `order`) x", "no source or view 'order': did you mean 'orders'"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM orders) SELECT * FROM a", "no source or view 'b'"),
        ("SELECT 1 AS orders", "it reads none of the sources and views: orders, products"),
    ],
)
def test_what_sql_cannot_read(sql: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        inputs_of(sql, ["products", "orders"], "it")


def test_a_view_may_have_the_name_of_a_column(tmp_path: Path) -> None:
    pipeline = loaded(
        tmp_path,
        """
        sources: {orders: {rate: 1}}
        views:
          sums: SELECT value % 2 AS odd, sum(value) AS total FROM orders GROUP BY value % 2
          total: SELECT max(total) AS total FROM sums
        sinks: {shown: {from: total, console: {}}}
        """,
        "sums.yaml",
    )
    assert pipeline.needs("total") == ["orders", "sums", "total"]
