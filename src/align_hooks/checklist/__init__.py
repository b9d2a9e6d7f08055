"""The guide's CheckList: what two configurations must agree in, as data, and what judges two sides by it."""
