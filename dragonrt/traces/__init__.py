"""What happened when: types of events, the file they are written to, and folds over them."""
