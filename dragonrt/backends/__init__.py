"""Language models: rows of documents that share their newest tokens, exactly and fast."""
