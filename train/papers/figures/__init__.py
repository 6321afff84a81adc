"""The papers' figures, drawn from losses and finished runs."""
