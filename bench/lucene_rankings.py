"""Records rankings of the real Lucene, for `isentrope check-task webshop --products FILE --rankings OUT`.

    pip download --no-deps pyserini==0.17.0 && unzip -j pyserini-*.whl '*fatjar.jar'
    python bench/lucene_rankings.py --jar anserini-0.14.3-fatjar.jar --products items_shuffle_1000.json --out OUT

Needs Java 11 or later and a jar with Lucene 8 in it, such as the one above. Queries are instructions with options and
prices, words of titles, and attributes. Without --products the generated shop is ranked.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
from pathlib import Path

from isentrope.worlds.webshop.catalogue import Catalogue, open_generated, open_official
from isentrope.worlds.webshop.products import Product

PROGRAM = Path(__file__).with_name("LuceneRankings.java")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jar", required=True)
    parser.add_argument("--products", default="", help="official product file; empty: the generated shop")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    catalogue = open_official(arguments.products) if arguments.products else open_generated()
    with tempfile.TemporaryDirectory() as folder:
        documents, queries = Path(folder, "documents.tsv"), Path(folder, "queries.txt")
        products = [catalogue.product(position) for position in range(len(catalogue))]
        documents.write_text("".join(f"{one.asin}\t{one_line(one.document())}\n" for one in products), encoding="utf-8")
        queries.write_text("\n".join(make_queries(catalogue, products, arguments.queries)) + "\n", encoding="utf-8")
        command = ["java", "-cp", arguments.jar, str(PROGRAM), "rank", str(documents), str(queries), str(arguments.out)]
        subprocess.run(command, check=True)


def make_queries(catalogue: Catalogue, products: list[Product], count: int) -> list[str]:
    draw = random.Random(0)
    attributes = sorted({one for product in products for one in product.attributes})
    queries: set[str] = set()
    while len(queries) < count:
        words = draw.choice(products).title.split()
        some = min(len(words), draw.randint(1, 5))
        queries |= {
            one_line(catalogue.goal(draw.randrange(catalogue.goals)).text.lower()),
            one_line(" ".join(draw.sample(words, some)).lower()),
            one_line(" ".join(draw.sample(attributes, draw.randint(1, 3))).lower()),
        }
    return sorted(queries)[:count]


def one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
