"""Operations in the form that a device runs fastest, each with a plain reference."""
