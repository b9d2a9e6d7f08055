"""What findings have in common that says more than each alone: a conversion, a layout, copies on ranks."""
