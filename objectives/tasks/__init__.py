"""Tasks as files, and how their answers are scored: metrics, chance, stored predictions."""
