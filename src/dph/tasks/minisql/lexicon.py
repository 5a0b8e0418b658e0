"""The vocabulary: tables, columns and values. They are few, so that a model of about a million parameters learns them
in a minute or two; a column has the same type in every table."""

TABLES: dict[str, str] = {
    "singers": "singer_id",
    "stadiums": "stadium_id",
    "workers": "worker_id",
    "cars": "car_id",
    "students": "student_id",
    "movies": "movie_id",
    "cities": "city_id",
    "books": "book_id",
}
"""Table name → name of a foreign key that refers to it."""

TEXT_COLUMNS: tuple[str, ...] = ("name", "country", "color", "genre", "title", "status")
"""Text columns."""

TEXT_VALUES: tuple[str, ...] = ("alpha", "beta", "gamma", "delta", "omega", "sigma")
"""Values of every text column: the same for all columns, so that a model must read them in the question."""

NUMBER_COLUMNS: tuple[str, ...] = ("age", "price", "score", "height", "weight", "size")
"""Integer columns; values are multiples of five from 5 to 75."""

BOUNDS: tuple[int, ...] = (20, 30, 40, 50, 60)
"""Numbers that occur in comparisons."""
