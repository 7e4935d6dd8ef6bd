"""The equation: records, masks, the engine and its measures. torch lives here."""
