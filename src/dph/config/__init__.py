"""Settings: their schema, how presets, files and flags fill them, and how they are written down."""
