"""What shows a Run: pure functions from a document to text. They know nothing of sources."""
