"""All tables by number and data set: of the thesis, and on embedded data."""

from train.papers.tables import embedded, thesis
from train.papers.tables.table import Table

# By the number and the embedded data set; None for the table's own data set.
CATALOGUE: dict[tuple[str, str | None], Table] = {
    **{(table.number, None): table for table in thesis.TABLES},
    **{(table.number, table.on): table for table in embedded.TABLES},
}
THESIS = tuple(table.number for table in thesis.TABLES)
EMBEDDED = tuple(dict.fromkeys(on for _, on in CATALOGUE if on is not None))
