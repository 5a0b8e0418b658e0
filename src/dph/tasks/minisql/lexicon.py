"""The words of the world: tables, columns and values. Few, because a model of about a million parameters learns them
in a minute or two; a column has the same type wherever it stands."""

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
"""Table name to the name of a foreign key that points to it."""

TEXT_COLUMNS: tuple[str, ...] = ("name", "country", "color", "genre", "title", "status")
"""Text columns."""

TEXT_VALUES: tuple[str, ...] = ("alpha", "beta", "gamma", "delta", "omega", "sigma")
"""Values of every text column: the same in all, so that they are read in the question, not guessed from a column."""

NUMBER_COLUMNS: tuple[str, ...] = ("age", "price", "score", "height", "weight", "size")
"""Integer columns; values are multiples of five from 5 to 75."""

BOUNDS: tuple[int, ...] = (20, 30, 40, 50, 60)
"""Numbers that questions compare with."""
