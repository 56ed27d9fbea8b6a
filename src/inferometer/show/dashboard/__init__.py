"""The store as a web page: a JSON API and handwritten pages on top of it. The static site uses the same pages."""
