"""Who holds what: the metadata image, the controller's decisions, and a partition replica as leader."""
