"""What `bench/compare`, `bench/soak` and `bench/report` are made of. Standard library only."""
