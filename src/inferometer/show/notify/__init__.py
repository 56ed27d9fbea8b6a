"""Telling people of a failure, a regression or a recovery: what is news, in which words, by which channel."""
