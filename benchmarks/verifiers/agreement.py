"""How far the verifiers agree with official evaluators: `python -m benchmarks.verifiers.agreement DATA [--workers N]`.

DATA holds predictions and answers that the official evaluators labelled, in spider/, bird/ and math/ (see
docs/concepts/verifiers.md). Prints one line per file and rule, then every row that differs. Each part also runs alone
(agreement_sql.py, agreement_math.py).
"""

import sys

from benchmarks.verifiers import agreement_math, agreement_sql

if __name__ == "__main__":
    print("SQL")
    agreement_sql.main(sys.argv[1:])
    print("\nMathematics")
    agreement_math.main(sys.argv[1:])
