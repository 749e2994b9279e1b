"""Files and object storage: what is read is looked at first, and what is written is complete or not there."""
