"""Other tools' files: what they recorded becomes a run of the store, and the other way round."""
