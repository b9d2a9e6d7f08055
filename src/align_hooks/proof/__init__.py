"""``align-hooks prove``: whether recording changes a job, and what it costs there, shown on the job itself."""
