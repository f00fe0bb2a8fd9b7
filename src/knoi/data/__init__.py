"""FROM DISK TO MINIBATCH: sources of one view, aligned pairs, shuffled streams."""
