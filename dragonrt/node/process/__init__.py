"""Build, run and end the process of one side: settings, model, documents, index."""
