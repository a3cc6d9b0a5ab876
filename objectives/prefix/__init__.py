"""The prefix cache: states of frozen layers, computed once and kept within a budget."""
