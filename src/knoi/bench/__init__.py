"""The paper's first experiment, for anyone to run again: `knoi bench mnist8m`."""
