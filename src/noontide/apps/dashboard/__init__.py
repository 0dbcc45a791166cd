"""The dashboard: static pages that `noontide api` serves under `/`. The browser speaks to the public API only.

No build: ES modules as they are written, and one vendored file with Preact and htm (`static/vendor`, with licences).
"""
