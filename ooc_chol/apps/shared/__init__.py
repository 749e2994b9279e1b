"""What several applications need alike, on ``ooc_chol`` and its toolbox."""
