"""The experiments: what geonorm does, shown on data."""
