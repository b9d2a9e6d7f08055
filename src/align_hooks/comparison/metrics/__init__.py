"""How far two quantities are apart, and how far honest ones may be."""
