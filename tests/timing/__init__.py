"""How long a release takes on neighbours: whether single calls are told apart better than privacy allows."""
