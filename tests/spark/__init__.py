"""The data source: most tests call its readers as Spark would, about ten go through a real Spark."""
