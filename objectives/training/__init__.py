"""One trial: batches, steps, evaluation, checkpoints and kept weights. `finetune` is the objective."""
