"""What `make bench-peers` runs: the same loads through what a Celery user would pick today."""

USERS = 200  #: of whom requests come, where they are asked of
