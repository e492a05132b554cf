"""W&B dashboards: a workspace and a report that show the runs of a sweep."""
