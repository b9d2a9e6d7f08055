"""Layouts and sizes of one model, trained in turn and each compared with another: the guide's way from one card to many."""
