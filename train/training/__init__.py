"""Steps, the state that they change, and the loop around them."""
