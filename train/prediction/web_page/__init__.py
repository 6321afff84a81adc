"""A classifier with its sets as a page: a folder of static files, computed in the browser.

The files of the page are in `assets`. The preparation of photographs there has the integers of
Pillow's filter, so that the sets are those of `train.predict`.
"""
