"""Split-QA: questions over documents on two sides; made, and scored, by a file each."""
