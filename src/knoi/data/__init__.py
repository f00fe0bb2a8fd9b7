"""From disk to minibatch: views of any format, aligned pairs of rows, shuffled streams."""
