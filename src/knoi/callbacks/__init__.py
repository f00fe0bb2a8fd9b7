"""What looks at a run after each step: history, early stopping, clock, progress, checkpoint."""
