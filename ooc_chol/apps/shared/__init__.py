"""What several applications need alike, on public names of ``ooc_chol``."""
