"""What `make bench-peers` runs: the same loads through what a Celery user would pick today."""
