"""`tidelog pipeline …`: pipelines on Spark, started, shown and stopped."""
