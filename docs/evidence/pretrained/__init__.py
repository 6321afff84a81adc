"""The study on features of a pretrained network: its design, its runs and its numbers."""
