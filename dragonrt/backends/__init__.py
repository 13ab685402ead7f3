"""Run language models over rows: a row has one document, followed by tokens that all rows share."""
