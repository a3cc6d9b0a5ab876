"""From files, folders and the hub to examples with labels as numbers, and to tokens."""
