"""A classifier with its sets as a page: a folder of static files, computed in the browser.

The files of the page are in `assets`. They prepare photographs with the integers of Pillow's
filter, so that the sets are the same as in `train.predict`.
"""
