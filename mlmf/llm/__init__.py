"""Language models that answer for the text systems."""
