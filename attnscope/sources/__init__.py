"""What makes a Run: a sentence, tensors from a file. They know nothing of views."""
