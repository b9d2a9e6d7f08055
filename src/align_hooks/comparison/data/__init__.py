"""What both models consumed, and what they made of each token."""
