"""Where examples come from: folders, tables, features, and data sets by their names."""
