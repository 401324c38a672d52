"""What runs leave behind and what is made of it: MLflow, aggregation, tables."""
