"""What people look at: pages, charts and tables that need nothing else."""
