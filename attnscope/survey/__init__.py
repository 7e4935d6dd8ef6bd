"""Surveys: what the heads, tokens and layers of a model do, in numbers that fit on a page."""
