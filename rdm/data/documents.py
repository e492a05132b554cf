"""Documents in files of several formats."""

from collections.abc import Iterator

from rdm.data.corpus import Example, FileNames, Files, Group, Split, compile_pattern, join_lines
from rdm.data.reading import stream_lines
from rdm.data.tables import FORMATS, format_of, stream_columns
from rdm.errors import require
from rdm.hashing import short_hash


class DocumentFiles(Files):
    """Documents in text files, as in :class:`~rdm.data.corpus.Documents`, or in table files with one document per row.

    Args:
        column: the column of table files that holds the text; None means ``text``. Text files have no columns.
        first_line: as in :class:`Documents`; for text files only.
    """

    def __init__(
        self,
        root: str,
        train: FileNames = "train.txt",
        valid: FileNames = "valid.txt",
        test: FileNames = "test.txt",
        column: str | None = None,
        first_line: str | None = None,
    ) -> None:
        super().__init__(root, train, valid, test)
        self.column, self.first_line = column, compile_pattern(first_line)

    def stream_group(self, files: Group) -> Iterator[Example]:
        (file,) = files
        table = format_of(file.name)
        if table:
            require(self.first_line is None, f"data.first_line is for text files, but {file} has a document per row")
            return stream_columns(file, [self.column or "text"], table)
        require(self.column is None, f"data.column={self.column} is for tables ({', '.join(FORMATS)}), not for {file}")
        return zip(join_lines(stream_lines(file), self.first_line))

    def fingerprint(self, split: Split) -> str:
        pattern = self.first_line and self.first_line.pattern
        return short_hash(super().fingerprint(split), str(self.column), str(pattern))
