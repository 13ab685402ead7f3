"""What can go wrong in retrieval, as one line for the user.

RetrievalError          the index, the model or the request cannot be used
+-- DocumentError       one file cannot be read: it is skipped, the rest is indexed
"""


class RetrievalError(Exception):
    """The index, a model or a request cannot be used; the message says what to do."""


class DocumentError(RetrievalError):
    """One file cannot be read as a document."""
