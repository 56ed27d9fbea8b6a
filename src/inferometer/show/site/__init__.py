"""The static site: the dashboard's pages with their data in files, for GitHub Pages or any folder."""
