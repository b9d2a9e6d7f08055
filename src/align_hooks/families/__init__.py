"""Model families (:class:`.family.Family`), each a file of data for both sides; :mod:`.registry` lists them. Imports no framework."""
