"""How a wrapper gets onto a framework, and how it is accounted for. The only importer of wrapt."""
