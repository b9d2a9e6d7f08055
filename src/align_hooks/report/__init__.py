"""A comparison as something to read. Imports only what a comparison is made of."""
