"""The store as a web page: a JSON API and hand-written pages over it. The static site shows the same pages."""
