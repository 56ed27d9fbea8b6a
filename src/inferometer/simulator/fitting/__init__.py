"""A model of a measured server: steps derived from records, the fitted terms of a step, and the model file."""
