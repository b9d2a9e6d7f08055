"""Layouts and sizes of one model, trained one after the other and each held against another: the guide's way from one card to many."""
