"""One file per runtime; the file's stem, with `-` for `_`, is the runtime's public name."""
