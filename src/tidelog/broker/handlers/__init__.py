"""One file per subject; each opens with its API versions, its behaviour and what is not done."""
