"""Files of rows: formats, columns and their types, and the comparison of columns before a run."""
