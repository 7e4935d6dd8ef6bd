"""Text, the pieces it is cut into, and what cuts it. Nothing here knows tensors."""
