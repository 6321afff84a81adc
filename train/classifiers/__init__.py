"""Where scores come from: a run, published weights, a head with its network, a program."""
