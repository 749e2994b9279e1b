"""What vendors' libraries and the hardware itself do, measured on GPUs."""
