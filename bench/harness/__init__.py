"""The modules of `bench/compare`, `bench/soak` and `bench/report`. Standard library only."""
