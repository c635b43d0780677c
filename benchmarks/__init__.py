"""What `make bench` runs: celery-throttled against plain Celery, in one run, side by side."""
